//! What a server writes into a volume by itself, in small transactions.

use crate::core::backoff;
use crate::keys;
use crate::loans::SLOTS;
use crate::records::{self, LoanRecord, Number, SessionRecord};
use crate::stored::{decoded, store_error};
use crate::volume::Volume;
use bytes::Bytes;
use strake_engine::kv::{KvError, Outcome, Transaction};
use strake_types::shares::SESSION_BITS;
use strake_types::{Error, ErrorKind, Ino, Result};

/// Numbers of inodes reserved at a time, with a sync.
const BLOCK: u64 = 1 << 16;
/// Which number under `N` counts inodes.
const NUMBER_INODES: u8 = 0;
/// Which number under `N` counts sessions.
const NUMBER_SESSIONS: u8 = 1;
/// Which number under `N` counts how often a share began to lend.
const NUMBER_LENDINGS: u8 = 2;
/// Bits of a loan's number that count loans; those above count how often the share began to lend.
const LOAN_BITS: u32 = 32;
/// Keys that one transaction sets or deletes, where there may be any number of them: no store takes all at once.
pub(crate) const WRITES_MAX: usize = 500;
/// Bytes in them. etcd takes 1.5 MiB unless told otherwise, with what goes around them.
pub(crate) const WRITTEN_BYTES_MAX: usize = 512 << 10;
/// How often a small transaction of the server's own is tried again.
const OWN_TRIES_MAX: u32 = 100;

impl Volume {
    /// A number for a new inode below `dir`.
    pub async fn new_ino(&self, dir: Ino) -> Result<Ino> {
        self.new_inos(dir, 1).await
    }

    /// The first of so many of them, each one more than the one before. They are fewer than are reserved at a time.
    pub async fn new_inos(&self, dir: Ino, count: u32) -> Result<Ino> {
        loop {
            if let Some(counter) = self.inodes.lock().take(count.into()) {
                let shares = self.settings().shares;
                return Ok(shares.place(keys::child_ino(dir, counter), shares.index(self.id)));
            }
            self.have_inos(count as usize).await?;
        }
    }

    /// Sees to it that there are numbers for so many new inodes. Best before their transaction: while it holds a snapshot
    /// it would wait for another one, and a store gives so many and no more.
    pub async fn have_inos(&self, count: usize) -> Result<()> {
        if self.inodes.lock().left() >= count as u64 {
            return Ok(());
        }
        let _one = self.reserving.lock().await;
        if self.inodes.lock().left() >= count as u64 {
            return Ok(());
        }
        let next = self.reserve(NUMBER_INODES, BLOCK).await?;
        if next + BLOCK > keys::COUNTER_MAX {
            return Err(Error::with(ErrorKind::NoSpace, "inode numbers are used up"));
        }
        // None is given to another file when the power is lost: who has the first one open would write into it.
        self.sync().await?;
        let mut block = self.inodes.lock();
        (block.next, block.end) = (next, next + BLOCK);
        Ok(())
    }

    /// An id for a new session, which no other share of the volume gives.
    pub async fn new_session_id(&self) -> Result<u64> {
        let share = u64::from(self.settings().shares.index(self.id));
        Ok(self.reserve(NUMBER_SESSIONS, 1).await? | share << SESSION_BITS)
    }

    /// Notes that a session is granted claims on files. What an earlier server has granted to whom nobody else knows.
    pub async fn note_claims(&self, session: u64) -> Result<()> {
        self.note_of(session, |record| record.claims = true).await
    }

    /// The same of exclusive leases on directories; or that it has none any more.
    pub async fn note_behind(&self, session: u64, behind: bool) -> Result<()> {
        self.note_of(session, |record| record.behind = behind).await
    }

    async fn note_of(&self, session: u64, note: impl Fn(&mut SessionRecord) + Sync) -> Result<()> {
        let key = keys::session(self.id, session);
        self.own_transaction(Some(&key), |stored, tx| {
            // One that is over meanwhile stays so.
            if let Some(mut record) = decoded::<SessionRecord>(&key, stored)? {
                note(&mut record);
                tx.put(key.clone(), records::encode(&record));
            }
            Ok(())
        })
        .await?;
        self.sync().await
    }

    /// Ends whatever an earlier server of this share has lent. Before anything else is read of it.
    pub async fn begin_loans(&self) -> Result<()> {
        let last = self.reserve(NUMBER_LENDINGS, 1).await? << LOAN_BITS;
        let stored = records::encode(&LoanRecord { number: last, ..LoanRecord::default() });
        let slots = (0..SLOTS).map(|slot| (keys::loan(self.id, slot), Some(stored.clone())));
        self.write(slots.collect()).await?;
        self.loans.reset(last);
        Ok(())
    }

    async fn reserve(&self, which: u8, count: u64) -> Result<u64> {
        let key = keys::number(self.id, which);
        let mut first = 0;
        self.own_transaction(Some(&key), |stored, tx| {
            let number: Option<Number> = decoded(&key, stored)?;
            first = number.map_or(2, |n| n.next);
            tx.put(key.clone(), records::encode(&Number { next: first + count }));
            Ok(())
        })
        .await?;
        Ok(first)
    }

    /// Sets a key, whatever it was.
    pub async fn put(&self, key: Vec<u8>, value: Bytes) -> Result<()> {
        self.write(vec![(key, Some(value))]).await
    }

    /// Sets or deletes keys, one after the other where they are many, also where an earlier commit to them was lost: once they were
    /// read that one does not come any more.
    pub async fn overwrite(&self, writes: Vec<(Vec<u8>, Option<Bytes>)>) -> Result<()> {
        let keys: Vec<Vec<u8>> = writes.iter().map(|(key, _)| key.clone()).collect();
        for some in keys.chunks(WRITES_MAX) {
            let snapshot = self.kv.snapshot().await.map_err(store_error)?;
            snapshot.multi_get(some).await.map_err(store_error)?;
        }
        self.write_many(writes).await
    }

    /// Sets or deletes keys, whatever they were.
    pub async fn write(&self, writes: Vec<(Vec<u8>, Option<Bytes>)>) -> Result<()> {
        self.write_noting(writes, &mut false).await
    }

    /// The same for however many keys, in transactions of bounded size: if one fails, those before it are carried out.
    pub async fn write_many(&self, writes: Vec<(Vec<u8>, Option<Bytes>)>) -> Result<()> {
        self.write_many_noting(writes, &mut false).await
    }

    /// The same; notes if that failed and something of it was done, or may have been.
    pub async fn write_many_noting(
        &self,
        mut writes: Vec<(Vec<u8>, Option<Bytes>)>,
        in_doubt: &mut bool,
    ) -> Result<()> {
        let mut is_begun = false;
        while !writes.is_empty() {
            let some = writes.drain(..at_once(&writes)).collect();
            let written = self.write_noting(some, in_doubt).await;
            *in_doubt |= is_begun && written.is_err();
            written?;
            is_begun = true;
        }
        Ok(())
    }

    /// The same as [`Volume::write`]; notes if that failed and may have been done all the same.
    pub async fn write_noting(
        &self,
        writes: Vec<(Vec<u8>, Option<Bytes>)>,
        in_doubt: &mut bool,
    ) -> Result<()> {
        let body = |_: Option<Bytes>, tx: &mut Transaction| {
            writes.iter().for_each(|(key, value)| tx.set(key.clone(), value.clone()));
            Ok(())
        };
        self.repeated_transaction(None, body, in_doubt).await
    }

    /// Runs a transaction that may be repeated freely, because it writes the same whether or not an
    /// earlier try got through. `body` gets the value of `read`.
    pub async fn own_transaction(
        &self,
        read: Option<&[u8]>,
        body: impl FnMut(Option<Bytes>, &mut Transaction) -> Result<()> + Send,
    ) -> Result<()> {
        self.repeated_transaction(read, body, &mut false).await
    }

    async fn repeated_transaction(
        &self,
        read: Option<&[u8]>,
        mut body: impl FnMut(Option<Bytes>, &mut Transaction) -> Result<()> + Send,
        in_doubt: &mut bool,
    ) -> Result<()> {
        for turn in 0..OWN_TRIES_MAX {
            let mut tx = Transaction::begin(&*self.kv).await.map_err(store_error)?;
            let found = match read {
                Some(key) => tx.get(key).await.map_err(store_error)?,
                None => None,
            };
            body(found, &mut tx)?;
            match tx.commit(&*self.kv).await {
                Ok(Outcome::Committed) => return Ok(()),
                Ok(Outcome::Conflict) => {}
                Ok(Outcome::Unknown) => *in_doubt = true,
                Err(error) => {
                    *in_doubt |= !matches!(error, KvError::Full { .. });
                    return Err(store_error(error));
                }
            }
            backoff(turn).await;
        }
        Err(Error::with(ErrorKind::Unavailable, "metadata store: too many conflicts"))
    }
}

/// How many of these one transaction writes: as many as fit, and one at least.
fn at_once(writes: &[(Vec<u8>, Option<Bytes>)]) -> usize {
    let mut bytes = 0;
    let fit = writes.iter().take(WRITES_MAX).take_while(|(key, value)| {
        bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        bytes <= WRITTEN_BYTES_MAX
    });
    fit.count().max(1).min(writes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 500 pages of locks are more than etcd takes at once.
    #[test]
    fn one_transaction_takes_so_many_writes_and_so_many_bytes_and_one_however_long_it_is() {
        let of = |bytes: usize| (vec![0], Some(Bytes::from(vec![0; bytes])));
        let short = vec![of(100); WRITES_MAX + 1];
        assert_eq!((at_once(&short), at_once(&short[..7]), at_once(&[])), (WRITES_MAX, 7, 0));
        let page = 6_000;
        let some = at_once(&vec![of(page); WRITES_MAX]);
        assert!(some > 50 && some * (page + 1) <= WRITTEN_BYTES_MAX, "{some}");
        assert_eq!(at_once(&[of(WRITTEN_BYTES_MAX), of(1)]), 1);
    }
}
