//! Whose the store is, and who may write its parts.

use super::super::pause::Pause;
use super::super::{DatabaseOptions, KvError, Part, Result};
use super::cluster::Cluster;
use super::failure::Failed;
use super::hub::Claim;
use super::keys::Keys;
use super::messages::{Compare, KeyValue, RangeRequest, RangeResponse, RequestOp, TxnRequest};
use super::records::{self, ClaimRecord, StoreRecord};
use bytes::Bytes;
use prost::Message;
use strake_base::random::SystemRandom;
use tokio::time::Instant;

/// Version of the keys and records that this release makes and reads.
const FORMAT: u32 = 1;
/// Oldest etcd that is good enough.
const VERSION_MIN: (u32, u32) = (3, 4);
/// Receipts of a part that are kept, for writers who do not know yet that they are followed.
const RECEIPTS_KEPT: usize = 20;
const NONCE_BYTES: usize = 16;

/// Who opens a store.
pub struct Opener {
    pub keys: Keys,
    pub id: String,
    pub host: String,
}

/// Sees to it that the store is there and ours. Whoever writes it goes on.
pub async fn open(
    cluster: &Cluster,
    opener: &Opener,
    options: &DatabaseOptions,
    deadline: Instant,
) -> Result<()> {
    let db = Db { cluster, opener, deadline };
    db.check_version().await?;
    let mut pause = Pause::default();
    loop {
        let opened = match db.owner().await? {
            Some((found, _)) if db.is_left_over(&found, options).await? => db.adopt(&found).await,
            Some((found, _)) => return db.check_owner(&found),
            None if !options.create => return Err(db.missing()),
            None => db.create().await,
        };
        match opened {
            Ok(true) => return Ok(()),
            // Another was faster, or the answer was lost: look again.
            Ok(false) => {}
            Err(error) => pause.after(error, deadline).await?,
        }
    }
}

/// Opens a part as its only writer. Who wrote it before changes nothing any more, whatever he has under way.
pub async fn claim(
    cluster: &Cluster,
    opener: &Opener,
    part: Part,
    deadline: Instant,
) -> Result<Claim> {
    let db = Db { cluster, opener, deadline };
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom.fill(&mut nonce).map_err(|e| KvError::Io {
        store: cluster.shown().to_owned(),
        cause: format!("no random number: {e}"),
    })?;
    let mut pause = Pause::default();
    loop {
        match db.try_claim(part, &nonce).await {
            Ok(Some(claim)) => return Ok(claim),
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => return Err(cluster.unreachable("others open it all the time")),
            Err(error) => pause.after(error, deadline).await?,
        }
    }
}

struct Db<'a> {
    cluster: &'a Cluster,
    opener: &'a Opener,
    deadline: Instant,
}

impl Db<'_> {
    fn store(&self) -> String {
        self.cluster.shown().to_owned()
    }

    async fn range(&self, range: RangeRequest) -> Result<RangeResponse> {
        match self.cluster.range(&range, self.deadline).await {
            Ok(found) => Ok(found),
            Err(failed) => Err(self.cluster.error(failed).await),
        }
    }

    async fn all_in(&self, (key, range_end): (Bytes, Bytes), at: i64) -> Result<Vec<KeyValue>> {
        let range = RangeRequest { range_end, ..RangeRequest::one(key) };
        Ok(self.range(range.at(at)).await?.kvs)
    }

    /// Carries out a transaction; `None`: a condition does not hold, or nobody knows.
    async fn txn(&self, compare: Vec<Compare>, success: Vec<RequestOp>) -> Result<Option<i64>> {
        let success = RequestOp::nested(success);
        let txn = TxnRequest { compare, success, failure: Vec::new() };
        match self.cluster.write(&txn, self.deadline).await {
            Ok(done) => Ok(done.succeeded.then(|| done.revision())),
            Err(Failed::Unsure(cause)) => {
                tracing::debug!("opening {}: {cause}", self.store());
                Ok(None)
            }
            Err(failed) => Err(self.cluster.error(failed).await),
        }
    }

    async fn check_version(&self) -> Result<()> {
        match self.cluster.version(self.deadline).await {
            Ok(version) => check_version(&self.store(), &version),
            Err(failed) => Err(self.cluster.error(failed).await),
        }
    }

    /// Whose the store is, and the revision that says so.
    async fn owner(&self) -> Result<Option<(StoreRecord, i64)>> {
        let found = self.range(RangeRequest::one(self.opener.keys.store())).await?;
        let read = |kv: &KeyValue| {
            Ok((records::read(&self.store(), &kv.key, &kv.value)?, kv.mod_revision))
        };
        found.kvs.first().map(read).transpose()
    }

    fn check_owner(&self, found: &StoreRecord) -> Result<()> {
        let (store, known) = (self.store(), FORMAT);
        if found.format > FORMAT {
            return Err(KvError::Newer { store, found: found.format, known });
        }
        if found.format < FORMAT {
            return Err(KvError::Older { store, found: found.format, known });
        }
        if found.id != self.opener.id {
            let owner = format!("store {}, made on {}", found.id, found.host);
            return Err(KvError::OtherOwner { store, owner });
        }
        Ok(())
    }

    fn missing(&self) -> KvError {
        KvError::Refused {
            store: self.store(),
            cause: "it is empty, and this server's metadata should be there".into(),
            next: "correct --meta, or restore etcd from a backup".into(),
        }
    }

    /// True for a store that another server has begun to make and never used, where one may be made.
    async fn is_left_over(&self, found: &StoreRecord, options: &DatabaseOptions) -> Result<bool> {
        let foreign = found.format == FORMAT && found.id != self.opener.id;
        Ok(foreign && options.create && self.is_empty().await?)
    }

    async fn is_empty(&self) -> Result<bool> {
        let (key, range_end) = self.opener.keys.all();
        let range = RangeRequest { range_end, limit: 1, keys_only: true, ..RangeRequest::one(key) };
        Ok(self.range(range).await?.kvs.is_empty())
    }

    fn record(&self) -> Bytes {
        let (id, host) = (self.opener.id.clone(), self.opener.host.clone());
        StoreRecord { format: FORMAT, id, host }.encode_to_vec().into()
    }

    /// Makes an empty store ours; false if another was faster.
    async fn create(&self) -> Result<bool> {
        if !self.is_empty().await? {
            let cause = "keys are there, but not the one that says whose";
            return Err(KvError::Corrupt { store: self.store(), cause: cause.into() });
        }
        let key = self.opener.keys.store();
        let put = RequestOp::put(key.clone(), self.record());
        Ok(self.txn(vec![Compare::is(key, 0)], vec![put]).await?.is_some())
    }

    /// Makes a store that was left over our own, unless its owner wrote into it, or opened it, just now.
    async fn adopt(&self, found: &StoreRecord) -> Result<bool> {
        let keys = &self.opener.keys;
        // Whoever writes it is shut out first; what is there then stays as it is.
        let as_owner =
            Opener { keys: keys.clone(), id: found.id.clone(), host: self.opener.host.clone() };
        let claim = claim(self.cluster, &as_owner, Part::Whole, self.deadline);
        let claim = Box::pin(claim).await?;
        let Some((still, seen)) = self.owner().await? else { return Ok(false) };
        if still.id != found.id || !self.is_empty().await? {
            return Ok(false);
        }
        let compare = vec![Compare::is(keys.store(), seen), Compare::is(claim.key, claim.revision)];
        let put = RequestOp::put(keys.store(), self.record());
        Ok(self.txn(compare, vec![put]).await?.is_some())
    }

    /// One try to become the writer of a part; `None`: something has changed, or the answer was lost.
    async fn try_claim(&self, part: Part, nonce: &[u8]) -> Result<Option<Claim>> {
        let keys = &self.opener.keys;
        let owner = self.range(RangeRequest::one(keys.store())).await?;
        let (now, Some(kv)) = (owner.revision(), owner.kvs.first()) else {
            return Err(self.missing());
        };
        self.check_owner(&records::read(&self.store(), &kv.key, &kv.value)?)?;
        let (own, receipt) = (keys.claim(part), keys.receipt(part, nonce));
        let claims = self.all_in(keys.claims(), now).await?;
        let receipts = self.all_in(keys.receipts(part), now).await?;
        if let Some(found) = self.found_own(&claims, &receipts, (&own, &receipt), nonce)? {
            return Ok(Some(found));
        }
        let (host, own_nonce) = (self.opener.host.clone(), Bytes::copy_from_slice(nonce));
        let record: Bytes = ClaimRecord { host, nonce: own_nonce }.encode_to_vec().into();
        // Nothing that matters to us has changed since we looked.
        let mut compare = vec![Compare::is(keys.store(), kv.mod_revision)];
        let whole = keys.claim(Part::Whole);
        match part {
            Part::Whole => {
                let (key, range_end) = keys.claims();
                compare.push(Compare::unchanged(key, range_end, now));
            }
            _ => compare.extend(
                [own.clone(), whole.clone()].map(|key| Compare::unchanged(key, Bytes::new(), now)),
            ),
        }
        // Who writes all of it is in the way of who writes a part, and the other way round.
        let is_in_the_way =
            |kv: &&KeyValue| kv.key != own && (part == Part::Whole || kv.key == whole);
        let others = claims.iter().filter(is_in_the_way).map(|kv| kv.key.clone());
        let mut success: Vec<_> =
            others.chain([own.clone()]).map(|key| RequestOp::put(key, record.clone())).collect();
        success.extend(old(receipts).into_iter().map(RequestOp::delete));
        success.push(RequestOp::put(receipt.clone(), records::receipt(0)));
        let claimed = match self.txn(compare, success).await {
            // etcd says so of the one that has filled it as well, and that one was carried out.
            Err(error @ KvError::Full { .. }) => {
                let claims = self.range(RangeRequest::one(own.clone())).await?.kvs;
                let receipts = self.range(RangeRequest::one(receipt.clone())).await?.kvs;
                let found = self.found_own(&claims, &receipts, (&own, &receipt), nonce)?;
                return found.map(Some).ok_or(error);
            }
            other => other?,
        };
        Ok(claimed.map(|revision| Claim {
            key: own,
            revision,
            record: record.clone(),
            receipt,
            receipt_revision: revision,
        }))
    }

    /// Our claim, if an earlier try whose answer was lost has made it.
    fn found_own(
        &self,
        claims: &[KeyValue],
        receipts: &[KeyValue],
        (own, receipt): (&Bytes, &Bytes),
        nonce: &[u8],
    ) -> Result<Option<Claim>> {
        let find = |all: &[KeyValue], key: &Bytes| all.iter().find(|kv| kv.key == key).cloned();
        let (Some(claim), Some(found)) = (find(claims, own), find(receipts, receipt)) else {
            return Ok(None);
        };
        let record: ClaimRecord = records::read(&self.store(), &claim.key, &claim.value)?;
        Ok((record.nonce == nonce).then(|| Claim {
            key: own.clone(),
            revision: claim.mod_revision,
            record: claim.value,
            receipt: receipt.clone(),
            receipt_revision: found.mod_revision,
        }))
    }
}

/// The receipts of those who have written a part so long ago that none of them asks for his any more.
fn old(mut receipts: Vec<KeyValue>) -> Vec<Bytes> {
    receipts.sort_by_key(|kv| std::cmp::Reverse(kv.create_revision));
    receipts.into_iter().skip(RECEIPTS_KEPT).map(|kv| kv.key).collect()
}

fn check_version(store: &str, found: &str) -> Result<()> {
    let mut numbers = found.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version < VERSION_MIN {
        true => Err(KvError::Refused {
            store: store.into(),
            cause: format!("the members are etcd {found}"),
            next: format!("upgrade them to {}.{} or newer", VERSION_MIN.0, VERSION_MIN.1),
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_that_is_too_old_is_refused() {
        let error = check_version("etcd://h:2379/n", "3.3.25").unwrap_err().to_string();
        assert!(error.contains("etcd 3.3.25") && error.contains("upgrade them to 3.4"), "{error}");
        for good in ["3.4.23", "3.5.0-rc.1", "3.10.0", "4.0.0"] {
            check_version("", good).unwrap();
        }
    }
}
