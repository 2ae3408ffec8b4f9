//! For those who look what is the matter with a file.

use super::{done, unexpected};
use crate::file::{OpenFile, Rights};
use crate::metrics::Op;
use crate::route::{Answer, Ask};
use crate::share::Share;
use crate::volume::Volume;
use bytes::Bytes;
use futures::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;
use strake_types::layout::Placement;
use strake_types::shares::SESSION_BITS;
use strake_types::{ChunkIndex, Credentials, Error, ErrorKind, GroupId, Ino, Result, TargetId};
use strake_wire::message::meta::{
    self, Check, Checked, Client, ClientList, ClientRef, Description, MetaAnswer, MetaOp,
};
use strake_wire::message::storage::{ChunkList, ChunksOf, Read, StorageAnswer, StorageOp};

/// All clients, each with the first of its sessions. What a session counts is added to its client.
fn by_client(sessions: Vec<Client>) -> Vec<Client> {
    let (mut clients, mut nth_of) = (Vec::<Client>::new(), HashMap::new());
    for session in sessions {
        let next = clients.len();
        let nth = match session.mount {
            // Of a release that does not know it.
            0 => next,
            mount => *nth_of.entry(mount).or_insert(next),
        };
        match clients.get_mut(nth) {
            Some(client) => add_session(client, &session),
            None => clients.push(session),
        }
    }
    clients
}

/// Counts what a client has in one more session.
fn add_session(client: &mut Client, session: &Client) {
    client.silent_ms = client.silent_ms.min(session.silent_ms);
    client.open += session.open;
    client.locked += session.locked;
    client.leased += session.leased;
    client.absent |= session.absent;
    client.lost |= session.lost;
}

impl Volume {
    /// The paths of an inode, and who has it open or locked. Only root is told, and the user who runs the metadata server.
    pub async fn describe(&self, cred: &Credentials, ino: Ino) -> Result<Description> {
        let _timer = self.count(Op::Layout);
        match self.ask(cred, MetaOp::Describe(meta::Inode { ino: ino.0 })).await? {
            MetaAnswer::Description(description) => Ok(description),
            _ => Err(unexpected("describe")),
        }
    }

    /// All clients of the volume but this one, each with the first of its sessions. Only root is told.
    pub async fn clients(&self, cred: &Credentials) -> Result<Vec<Client>> {
        self.clients_and_waits(cred).await.map(|list| list.clients)
    }

    /// The same, and what the metadata servers of the volume wait for.
    pub async fn clients_and_waits(&self, cred: &Credentials) -> Result<ClientList> {
        let _timer = self.count(Op::Layout);
        let ClientList { clients, waits } = self.sessions(cred).await?;
        let mut clients = by_client(clients);
        // A server of a release before shares does not know which client it is.
        let own: Vec<u64> =
            self.parts().iter().map(|share| share.session.stamp().session).collect();
        let is_own = |client: &Client| {
            client.mount == self.attempts().client() || own.contains(&client.session)
        };
        clients.retain(|client| !is_own(client));
        Ok(ClientList { clients, waits })
    }

    /// The client that has this session, as among [`Volume::clients`]. Only root is told.
    pub async fn client_with(&self, cred: &Credentials, session: u64) -> Result<Option<Client>> {
        let sessions = self.sessions(cred).await?.clients;
        let Some(found) = sessions.into_iter().find(|client| client.session == session) else {
            return Ok(None);
        };
        let is_it = |client: &Client| {
            client.session == session || found.mount != 0 && client.mount == found.mount
        };
        Ok(self.clients(cred).await?.into_iter().find(is_it))
    }

    /// The sessions of all clients with all shares, by share, and what their servers wait for.
    async fn sessions(&self, cred: &Credentials) -> Result<ClientList> {
        let mut sessions = ClientList::default();
        for answer in self.ask_all(cred, &MetaOp::ListClients(meta::Nothing {})).await? {
            let MetaAnswer::Clients(list) = answer else { return Err(unexpected("list clients")) };
            sessions.clients.extend(list.clients);
            sessions.waits.extend(list.waits);
        }
        Ok(sessions)
    }

    /// Ends all sessions of the client that has this one, as if nothing had been heard of it for long: which. It is gone
    /// when they [have ended](Volume::have_ended); by then it may be there again, in new ones. Only root may.
    pub async fn evict(&self, cred: &Credentials, session: u64) -> Result<Vec<u64>> {
        let _timer = self.count(Op::Layout);
        let all = self.sessions(cred).await?.clients;
        let none = || Error::with(ErrorKind::NotFound, format!("session {session}"));
        let client = all.iter().find(|client| client.session == session).ok_or_else(none)?;
        let same = |other: &&Client| {
            other.session == session || client.mount != 0 && other.mount == client.mount
        };
        let evicted: Vec<u64> = all.iter().filter(same).map(|other| other.session).collect();
        let ended = join_all(evicted.iter().map(|session| self.evict_session(cred, *session)));
        ended.await.into_iter().collect::<Result<()>>()?;
        Ok(evicted)
    }

    async fn evict_session(&self, cred: &Credentials, session: u64) -> Result<()> {
        let op = MetaOp::EvictClient(ClientRef { session });
        let share = self.parts().get((session >> SESSION_BITS) as usize);
        let none = || Error::with(ErrorKind::NotFound, format!("session {session}"));
        match self.ask_share(share.ok_or_else(none)?, cred, op).await {
            // By itself, meanwhile.
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            answer => done(&answer?, "evict"),
        }
    }

    /// True if none of these sessions is there any more.
    pub async fn have_ended(&self, cred: &Credentials, sessions: &[u64]) -> Result<bool> {
        let _timer = self.count(Op::Layout);
        let all = self.sessions(cred).await?.clients;
        Ok(!all.iter().any(|client| sessions.contains(&client.session)))
    }

    /// Looks through a page of a part of the volume for what does not fit. Only root may ask.
    pub async fn check(&self, cred: &Credentials, check: Check) -> Result<Checked> {
        let _timer = self.count(Op::Layout);
        if let [only] = self.parts() {
            return self.check_share(only, cred, check).await;
        }
        // One share after the other: where it goes on begins with which.
        let at = check.after.first().map_or(0, |at| usize::from(*at));
        let none = || Error::with(ErrorKind::Invalid, "no such share of the volume");
        let share = self.parts().get(at).ok_or_else(none)?;
        let after = check.after.slice(check.after.len().min(1)..);
        let mut checked = self.check_share(share, cred, Check { after, ..check }).await?;
        let next = match checked.next.is_empty() {
            true if at + 1 == self.parts().len() => return Ok(checked),
            true => at + 1,
            false => at,
        };
        checked.next = [&[next as u8], &checked.next[..]].concat().into();
        Ok(checked)
    }

    async fn check_share(
        &self,
        share: &Share,
        cred: &Credentials,
        check: Check,
    ) -> Result<Checked> {
        match self.ask_share(share, cred, MetaOp::Check(check)).await? {
            MetaAnswer::Checked(checked) => Ok(checked),
            _ => Err(unexpected("check")),
        }
    }

    /// Bytes of a chunk from one of its targets and from no other, checked; one attempt. Fewer than
    /// asked for where the chunk ends before.
    pub async fn read_copy(
        &self,
        file: &Arc<OpenFile>,
        chunk: ChunkIndex,
        target: TargetId,
        offset: u64,
        len: u64,
    ) -> Result<Bytes> {
        let _timer = self.count(Op::Read);
        let attr = self.getattr(file.ino()).await?;
        let none = || Error::with(ErrorKind::Invalid, format!("inode {} has no chunks", attr.ino));
        let placement = Placement::new(attr.layout.clone().ok_or_else(none)?);
        let group = placement.group_of(chunk);
        let id = self.chunk(file.ino(), chunk);
        let read = StorageOp::Read(Read { chunk: id.into(), offset, len });
        Ok(self.ask_copy(file, group, target, read).await?.1)
    }

    /// A page of the chunks of a file, from an index on, that one of a group's targets has, also of those in which there are no bytes:
    /// no other target is asked; one attempt.
    pub async fn list_copy(
        &self,
        file: &Arc<OpenFile>,
        group: GroupId,
        target: TargetId,
        from: u64,
    ) -> Result<ChunkList> {
        let _timer = self.count(Op::Layout);
        let (volume, ino) = (self.home(file.ino()).0, file.ino().0);
        let list = StorageOp::Chunks(ChunksOf { volume, ino, from, max: 0 });
        match self.ask_copy(file, group, target, list).await?.0 {
            StorageAnswer::Chunks(page) => Ok(page),
            _ => Err(unexpected("chunks")),
        }
    }

    async fn ask_copy(
        &self,
        file: &OpenFile,
        group: GroupId,
        target: TargetId,
        op: StorageOp,
    ) -> Result<Answer> {
        let rights = Some(Rights::of(&file.state, false));
        let ask = Ask { volume: self, group, op, payload: Bytes::new(), rights, attempt: None };
        let request = ask.request(target, self.map().route(group)?.epoch)?;
        let answer = self.target_once(request, Bytes::new()).await?;
        ask.check(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order in which they are met; those that say no number are clients of their own.
    #[test]
    fn the_sessions_of_a_mount_with_all_shares_are_one_client() {
        let session = |share: u64, mount: u64| Client {
            session: (share << SESSION_BITS) | (mount + 1),
            mount,
            open: 1,
            ..Client::default()
        };
        let of_share = |share| (0..4).map(move |mount| session(share, mount));
        let clients = by_client((0..3).flat_map(of_share).collect());
        let shown = |c: &Client| (c.session >> SESSION_BITS, c.mount, c.open);
        let shown: Vec<_> = clients.iter().map(shown).collect();
        assert_eq!(shown, [(0, 0, 1), (0, 1, 3), (0, 2, 3), (0, 3, 3), (1, 0, 1), (2, 0, 1)]);
    }
}
