//! What is known of a file to which several clients append, one after the other, under a lock.
//!
//! Whoever holds the lock and opens the file sees everything that was acknowledged, and what it appends
//! goes behind that. What a change that failed has touched may be anything from then on: its messages
//! may still be under way. So a range of bytes is either known or not looked at any more.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use strake_base::count_case;

/// Time after which a holder that nobody has heard of may have lost its lock: the lease of its session is
/// 30 s by the server's clock.
const LEASE: Duration = Duration::from_secs(25);

/// A client that holds the lock.
#[derive(Clone, Copy, Debug)]
struct Holder {
    client: u32,
    /// When it was surely heard by the metadata server.
    heard: Duration,
    /// Somebody evicts it: it may have lost the lock, and what it has not been acknowledged.
    evicted: bool,
}

/// A file of records.
#[derive(Debug, Default)]
pub struct Log {
    /// As the holder of the lock sees it.
    bytes: Vec<u8>,
    /// Of these nobody knows what they are.
    unknown: Vec<Range<usize>>,
    /// From here on nobody knows how long the file is.
    doubt: Option<usize>,
    /// From here on a holder had changed the file that is lost. It is fenced before anybody else gets the lock:
    /// what the next one finds when it opens the file is what has become of that, and nothing comes later.
    lost: Option<usize>,
    /// Longest it has ever been.
    longest: usize,
    /// Bytes up to here have been acknowledged, and nothing that began since has touched them.
    stable: usize,
    /// Bytes up to here are on disks.
    durable: usize,
    /// Where the first change begins that the holder has not been acknowledged.
    pending: Option<usize>,
    /// Cuts so far.
    cuts: u64,
    holder: Option<Holder>,
    /// Clients that are being evicted: nobody knows which of their sessions that ends.
    evicting: BTreeSet<u32>,
    /// When clients were evicted last: what they asked for before was in the session that is over.
    evictions: BTreeMap<u32, Duration>,
    /// What was not synced may have been lost.
    lossy: bool,
    /// One copy acknowledges alone: what is not synced may be lost at any time.
    alone: bool,
    /// It may be as long as this again: a cut was not synced when power was lost.
    regrows_to: usize,
    records: u64,
}

/// What was true before a file was opened.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    stable: usize,
    cuts: u64,
}

impl Log {
    /// From now on what is not synced may be lost.
    pub fn power_lost(&mut self) {
        self.lossy = true;
        // What was cut off may come back, too, and the file be as long as before when a client dies that had it
        // open: then targets say how long it is.
        self.unknown.push(self.durable..self.longest);
        self.regrows_to = self.longest;
    }

    /// True if nobody will ever know again what is appended: a change that failed may be under way still, whatever is done
    /// to the file meanwhile.
    pub fn is_spoilt(&self) -> bool {
        self.doubt.is_some()
    }

    /// What is known of an empty file that takes the place of this one.
    pub fn successor(&self) -> Log {
        let (evicting, evictions) = (self.evicting.clone(), self.evictions.clone());
        Log { evicting, evictions, lossy: self.lossy, alone: self.alone, ..Log::default() }
    }

    /// All copies are equal again: of what is acknowledged from now on nothing is lost until power is lost once more.
    pub fn whole_again(&mut self) {
        if self.lossy && !self.alone {
            // What is not synced may have gone meanwhile with whoever had it.
            self.power_lost();
            self.lossy = false;
        }
    }

    /// From now on one copy acknowledges alone (`--ack primary`, S-099).
    pub fn acknowledge_alone(&mut self) {
        self.power_lost();
        self.alone = true;
    }

    /// A client has been granted the lock.
    ///
    /// # Errors
    /// Another one has it.
    pub fn granted(&mut self, client: u32, asked: Duration) -> Result<(), String> {
        let evicted = self.evicting.contains(&client)
            || self.evictions.get(&client).is_some_and(|at| asked <= *at);
        if evicted && self.holder.is_some_and(|other| other.client != client) {
            // It had it in a session that is over, and hears of that late.
            return Ok(());
        }
        let before = self.holder.replace(Holder { client, heard: asked, evicted });
        let Some(other) = before else { return Ok(()) };
        let silent = asked.saturating_sub(other.heard);
        if other.client != client && silent < LEASE && !other.evicted {
            let other = other.client;
            return Err(format!("client {client} was granted what client {other} has locked"));
        }
        match other.client == client {
            true => self.give_up(),
            false => self.lose(),
        }
        Ok(())
    }

    /// A client is about to be evicted.
    pub fn evict(&mut self, client: u32) {
        self.evicting.insert(client);
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.client == client) {
            holder.evicted = true;
        }
    }

    /// That has happened: what the client does from now on it does in another session.
    pub fn evicted(&mut self, client: u32, now: Duration) {
        self.evicting.remove(&client);
        self.evictions.insert(client, now);
    }

    /// A client stands still, perhaps for so long that its session ends.
    pub fn silence(&mut self, client: u32) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.client == client) {
            holder.evicted = true;
        }
    }

    /// It goes on. Nobody knows whether its session is over: what it had begun may be lost, or come later, and a lock that it
    /// was granted before is one of which nobody knows whose it is.
    pub fn comes_back(&mut self, client: u32, now: Duration) {
        if self.holder.take_if(|holder| holder.client == client).is_some() {
            self.give_up();
        }
        self.evictions.insert(client, now);
    }

    /// The holder has had an answer of the metadata server to what it asked for at this time.
    pub fn heard(&mut self, client: u32, asked: Duration) {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.client == client) {
            holder.heard = holder.heard.max(asked);
        }
    }

    /// True while the lock is surely a client's own.
    pub fn is_held_by(&self, client: u32) -> bool {
        self.holder.is_some_and(|holder| holder.client == client && !holder.evicted)
    }

    /// The holder lets go; what it has not been acknowledged is in doubt.
    pub fn let_go(&mut self, client: u32) {
        let Some(holder) = self.holder.take_if(|holder| holder.client == client) else { return };
        match holder.evicted && !self.evicting.contains(&client) {
            true => self.lose(),
            false => self.give_up(),
        }
    }

    /// The holder dies, and others get the lock when it is fenced.
    pub fn died(&mut self, client: u32) {
        if self.holder.take_if(|holder| holder.client == client).is_some() {
            self.lose();
        }
    }

    /// As [`Log::give_up`], of a holder that is lost.
    fn lose(&mut self) {
        if let Some(from) = self.pending.take() {
            self.lost = Some(self.lost.map_or(from, |lost| lost.min(from)));
            self.stable = self.stable.min(from);
        }
    }

    /// Something that a client did has failed.
    pub fn failed(&mut self, client: u32) {
        if self.is_held_by(client) {
            self.give_up();
        }
    }

    /// Of what the holder has not been acknowledged nobody knows what becomes of it.
    fn give_up(&mut self) {
        if let Some(from) = self.pending.take() {
            self.unknown.push(from..usize::MAX);
            self.doubt = Some(self.doubt.map_or(from, |doubt| doubt.min(from)));
            self.stable = self.stable.min(from);
        }
    }

    /// The holder has opened the file and found this length.
    ///
    /// # Errors
    /// It is not one that the file can have.
    pub fn opened(&mut self, len: usize) -> Result<(), String> {
        let expected = self.bytes.len();
        let regrown = self.may_have_regrown(len);
        let doubt = self.doubt.into_iter().chain(self.lost).min();
        if len != expected && !regrown && doubt.is_none_or(|from| len < from) {
            return Err(format!("{len} bytes long where {expected} are ({:?})", self.unknown));
        }
        if let Some(from) = self.lost.take().filter(|from| *from < len) {
            self.unknown.push(from..len);
        }
        self.bytes.resize(len, 0);
        self.longest = self.longest.max(len);
        self.durable = self.durable.min(len);
        Ok(())
    }

    /// Length as the holder sees it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True of an empty file.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The holder is about to append a record of so many bytes: where, and what.
    pub fn append(&mut self, len: usize) -> (usize, Bytes) {
        self.records += 1;
        let at = self.bytes.len();
        let mark = self.records.to_le_bytes();
        let bytes: Vec<u8> = mark.into_iter().cycle().take(len).collect();
        self.begin(at);
        if self.alone {
            // Its mount may have sent them already, and does not keep them.
            self.unknown.push(at..at + len);
        }
        self.bytes.extend(&bytes);
        self.longest = self.longest.max(self.bytes.len());
        (at, bytes.into())
    }

    /// The record that was to land at `at`, the last one, has landed at `offset`.
    ///
    /// # Errors
    /// There was no reason for that.
    pub fn landed(&mut self, at: usize, offset: usize) -> Result<(), String> {
        if offset == at {
            return Ok(());
        }
        if offset < at || offset > self.regrows_to {
            return Err(format!("appended at {offset} and not {at}"));
        }
        let len = offset + self.bytes.len() - at;
        self.unknown.push(at..len);
        self.bytes.resize(len, 0);
        self.longest = self.longest.max(len);
        Ok(())
    }

    /// True if the file may be so long again, also under who holds the lock: a cut was not synced when power was lost.
    pub fn may_have_regrown(&self, len: usize) -> bool {
        len > self.bytes.len() && len <= self.regrows_to
    }

    /// The holder is about to set the length; what is beyond the present one becomes zeros.
    pub fn resize(&mut self, len: usize) {
        self.begin(len.min(self.bytes.len()));
        if len < self.bytes.len() {
            self.cuts += 1;
            self.stable = self.stable.min(len);
            self.durable = self.durable.min(len);
        }
        self.bytes.resize(len, 0);
        self.longest = self.longest.max(len);
    }

    fn begin(&mut self, at: usize) {
        self.pending = Some(self.pending.map_or(at, |from| from.min(at)));
    }

    /// What the holder has done is with the servers; `synced`: on their disks.
    pub fn acknowledged(&mut self, client: u32, synced: bool) {
        if !self.is_held_by(client) {
            return;
        }
        let from = self.pending.take().unwrap_or(self.bytes.len());
        match (synced, self.lossy) {
            // Also what others have written, which the holder has learned by its open (S-002). What was lost before is unknown.
            (true, _) => {
                if self.durable >= from {
                    self.regrows_to = 0;
                }
                self.durable = self.bytes.len();
            }
            (false, true) => self.unknown.push(from..self.bytes.len()),
            (false, false) => {}
        }
        self.stable = self.bytes.len();
    }

    /// What is true now: whoever opens the file from now on sees what is stable.
    pub fn seen(&self) -> Seen {
        Seen { stable: self.stable, cuts: self.cuts }
    }

    /// What somebody has read who opened the file when this was true.
    ///
    /// # Errors
    /// It lacks what was acknowledged, or has something else in its place.
    pub fn check(&self, seen: Seen, len: usize, at: usize, data: &[u8]) -> Result<(), String> {
        if seen.cuts != self.cuts {
            return Ok(());
        }
        let stable = seen.stable.min(self.stable);
        if len < stable {
            return Err(format!("{len} bytes long where {stable} were acknowledged"));
        }
        self.compare(at, data, stable)
    }

    /// What the holder has read.
    ///
    /// # Errors
    /// It is not what is there.
    pub fn check_own(&self, at: usize, data: &[u8]) -> Result<(), String> {
        let end = at + data.len();
        if end > self.bytes.len() && !self.may_have_regrown(end) {
            return Err(format!("bytes up to {end} of a file of {}", self.bytes.len()));
        }
        self.compare(at, data, self.bytes.len())
    }

    fn compare(&self, at: usize, data: &[u8], end: usize) -> Result<(), String> {
        let known = self.bytes.iter().enumerate().take(end).skip(at);
        let (mut any_known, mut any_unknown) = (false, false);
        for ((place, expected), found) in known.zip(data) {
            let is_known = !self.unknown.iter().any(|range| range.contains(&place));
            if is_known && found != expected {
                return Err(format!("byte {place} is {found} where {expected} was written"));
            }
            any_known |= is_known;
            any_unknown |= !is_known;
        }
        if any_known {
            count_case("log-read-known");
        }
        if any_unknown {
            count_case("log-read-excused");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
