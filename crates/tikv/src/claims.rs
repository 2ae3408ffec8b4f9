//! Whose the store is, and who writes its parts.

use crate::cluster::{Cluster, Fault, begin, give_up};
use crate::failure::is_conflict;
use crate::lookups;
use crate::records::{Claim, FORMAT, Identity};
use std::future::Future;
use std::ops::Bound;
use strake_engine::kv::{DatabaseOptions, KvError, Part, Result};
use tikv_client::{KvPair, Transaction};
use tokio::time::Instant;

/// Claims of a store that are looked at: one a volume.
const CLAIMS_MAX: u32 = 100_000;

/// Sees to it that the store is there and ours. Whoever writes it goes on.
pub async fn open(cluster: &Cluster, options: &DatabaseOptions, deadline: Instant) -> Result<()> {
    let opened = transact(cluster, deadline, |mut transaction| async move {
        match identity(cluster, &mut transaction).await? {
            Some(found) if is_left_over(cluster, &mut transaction, &found, options).await? => {
                adopt(cluster, &mut transaction, &found, options).await?;
            }
            Some(found) => check_owner(cluster, &found, &options.store)?,
            None if !options.create => return Err(missing(cluster).into()),
            None => create(cluster, &mut transaction, options).await?,
        }
        Ok((transaction, ()))
    });
    opened.await
}

/// Opens a part as its only writer: whoever wrote it before, and still does, is fenced. Gives the number of
/// the new writer. The store is there.
pub async fn claim(
    cluster: &Cluster,
    store: &str,
    host: &str,
    part: Part,
    deadline: Instant,
) -> Result<u64> {
    let claimed = transact(cluster, deadline, |mut transaction| async move {
        let mut found =
            identity(cluster, &mut transaction).await?.ok_or_else(|| missing(cluster))?;
        check_owner(cluster, &found, store)?;
        // Who opens a part at the same time writes it too: one of the two does so once more.
        found.writers += 1;
        transaction.put(cluster.keys().store(), found.text()).await?;
        let claim = Claim { writer: found.writers, seq: 0, host: one_line(host) }.text();
        let keys = cluster.keys();
        let mut fenced = match part {
            Part::Whole => all_claims(cluster, &mut transaction).await?,
            _ => {
                let whole = [keys.claim(Part::Whole), keys.owner(Part::Whole)];
                let is_there = transaction.get(whole[0].clone()).await?.is_some();
                if is_there { whole.to_vec() } else { Vec::new() }
            }
        };
        fenced.extend([keys.claim(part), keys.owner(part)]);
        for key in fenced {
            transaction.put(key, claim.clone()).await?;
        }
        Ok((transaction, found.writers))
    });
    claimed.await
}

/// A transaction of our own, once more if another came before it. What it does is the same each time.
async fn transact<T, F>(
    cluster: &Cluster,
    deadline: Instant,
    body: impl Fn(Transaction) -> F,
) -> Result<T>
where
    F: Future<Output = Result<(Transaction, T), Fault>>,
{
    let body = &body;
    let done = cluster.ask(deadline, |client| async move {
        let before = lookups::failed();
        let (mut transaction, value) = body(begin(&client).await?).await?;
        if let Err(error) = transaction.commit().await {
            // Another may have been committed although we were not told.
            if is_conflict(&error) {
                give_up(transaction);
            }
            return Err(error.into());
        }
        match lookups::failed() == before {
            true => Ok(value),
            false => Err(cluster.unreachable("PD could not be asked for a region").into()),
        }
    });
    done.await
}

async fn identity(
    cluster: &Cluster,
    transaction: &mut Transaction,
) -> Result<Option<Identity>, Fault> {
    let Some(text) = transaction.get(cluster.keys().store()).await? else { return Ok(None) };
    let damaged = || cluster.corrupt("the key that says whose it is is damaged");
    Ok(Some(Identity::parse(&text).ok_or_else(damaged)?))
}

fn check_owner(cluster: &Cluster, found: &Identity, own: &str) -> Result<()> {
    let store = || cluster.shown().to_owned();
    let (format, known) = (found.format, FORMAT);
    if format > known {
        return Err(KvError::Newer { store: store(), found: format, known });
    }
    if format < known {
        return Err(KvError::Older { store: store(), found: format, known });
    }
    if found.owner != own {
        let owner = format!("store {}, made on {}", found.owner, found.host);
        return Err(KvError::OtherOwner { store: store(), owner });
    }
    Ok(())
}

fn missing(cluster: &Cluster) -> KvError {
    KvError::Refused {
        store: cluster.shown().to_owned(),
        cause: "nothing is under this name, and this server's metadata should be there".into(),
        next: "correct --meta, or restore the cluster from a backup".into(),
    }
}

async fn is_empty(cluster: &Cluster, transaction: &mut Transaction) -> Result<bool, Fault> {
    let (first, end) = cluster.keys().range(Bound::Unbounded, Bound::Unbounded);
    Ok(transaction.scan_keys(first..end, 1).await?.next().is_none())
}

/// True for a store that another server has begun to make and never used, where one may be made.
async fn is_left_over(
    cluster: &Cluster,
    transaction: &mut Transaction,
    found: &Identity,
    options: &DatabaseOptions,
) -> Result<bool, Fault> {
    let is_foreign = found.format == FORMAT && found.owner != options.store;
    Ok(is_foreign && options.create && is_empty(cluster, transaction).await?)
}

/// Makes a store that was left over our own. If its owner writes into it meanwhile, this conflicts with it.
async fn adopt(
    cluster: &Cluster,
    transaction: &mut Transaction,
    found: &Identity,
    options: &DatabaseOptions,
) -> Result<(), Fault> {
    let (writers, host) = (found.writers + 1, one_line(&options.host));
    let identity =
        Identity { writers, owner: options.store.clone(), host: host.clone(), ..found.clone() };
    transaction.put(cluster.keys().store(), identity.text()).await?;
    let claim = Claim { writer: writers, seq: 0, host }.text();
    for key in all_claims(cluster, transaction).await? {
        transaction.put(key, claim.clone()).await?;
    }
    Ok(())
}

async fn create(
    cluster: &Cluster,
    transaction: &mut Transaction,
    options: &DatabaseOptions,
) -> Result<(), Fault> {
    if !is_empty(cluster, transaction).await? {
        return Err(cluster.corrupt("keys are there, but not the one that says whose").into());
    }
    let (owner, host) = (options.store.clone(), one_line(&options.host));
    let identity = Identity { format: FORMAT, owner, host, writers: 0 };
    Ok(transaction.put(cluster.keys().store(), identity.text()).await?)
}

/// Every key that says who writes a part.
async fn all_claims(
    cluster: &Cluster,
    transaction: &mut Transaction,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut keys = Vec::new();
    for range in cluster.keys().all_claims() {
        let found = transaction.scan(range, CLAIMS_MAX).await?;
        keys.extend(found.map(|KvPair(key, _)| Vec::from(key)));
    }
    Ok(keys)
}

/// A name that is kept as a line.
fn one_line(name: &str) -> String {
    name.replace(['\n', '\r'], " ")
}
