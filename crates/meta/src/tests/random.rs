//! Random operations, each sent once or twice, on a store that conflicts, loses answers and
//! suspends, with restarts between: the server must agree with the model at every step, and a
//! message sent twice must count once.

use super::model::{Model, Node};
use crate::tests::check::check_shares;
use crate::tests::world::*;
use proptest::prelude::*;
use std::sync::Arc;
use strake_engine::kv::memory::{MemoryKv, Rates};
use strake_types::{ErrorKind, FileKind};
use strake_wire::message::common::AttrChange;
use strake_wire::message::meta::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// An operation on nodes by number (modulo how many there are) and names by number.
#[derive(Clone, Debug)]
enum Op {
    Make { dir: usize, name: usize, directory: bool },
    Remove { dir: usize, name: usize, directory: bool },
    Link { node: usize, dir: usize, name: usize },
    Rename { from: (usize, usize), to: (usize, usize), exchange: bool },
    Write { node: usize, offset: usize, len: usize },
    Truncate { node: usize, length: usize },
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let node = 0..12usize;
    let name = 0..NAMES.len();
    let at = (node.clone(), name.clone());
    prop_oneof![
        6 => (at.clone(), any::<bool>())
            .prop_map(|((dir, name), directory)| Op::Make { dir, name, directory }),
        3 => (at.clone(), any::<bool>())
            .prop_map(|((dir, name), directory)| Op::Remove { dir, name, directory }),
        2 => (node.clone(), at.clone()).prop_map(|(node, (dir, name))| Op::Link { node, dir, name }),
        5 => (at.clone(), at, any::<bool>())
            .prop_map(|(from, to, exchange)| Op::Rename { from, to, exchange }),
        2 => (node.clone(), 0..50usize, 0..50usize)
            .prop_map(|(node, offset, len)| Op::Write { node, offset, len }),
        2 => (node, 0..60usize).prop_map(|(node, length)| Op::Truncate { node, length }),
        1 => Just(Op::Restart),
    ]
}

/// The server, the model, and which inode is which node.
struct Pair {
    world: World,
    model: Model,
    inos: Vec<u64>,
    seq: u64,
}

impl Pair {
    fn message(&self, op: &Op) -> MetaOp {
        let ino = |node: usize| self.inos[node % self.inos.len()];
        let place = |dir: usize, name: usize| at(ino(dir), NAMES[name]);
        match *op {
            Op::Make { dir, name, directory } => {
                let kind = if directory { FileKind::Directory } else { FileKind::File };
                MetaOp::Create(Create { at: place(dir, name), ..new(1, "", kind, 0o755) })
            }
            Op::Remove { dir, name, directory } => {
                MetaOp::Unlink(Unlink { at: place(dir, name), directory })
            }
            Op::Link { node, dir, name } => {
                MetaOp::Link(Link { ino: ino(node), to: place(dir, name) })
            }
            Op::Rename { from, to, exchange } => MetaOp::Rename(Rename {
                from: place(from.0, from.1),
                to: place(to.0, to.1),
                exchange,
                no_replace: false,
            }),
            Op::Write { node, offset, len } => MetaOp::WriteInline(WriteInline {
                ino: ino(node),
                offset: offset as u64,
                data: vec![len as u8; len].into(),
                ..WriteInline::default()
            }),
            Op::Truncate { node, length } => MetaOp::SetAttr(SetAttr {
                ino: ino(node),
                change: AttrChange { length: Some(length as u64), ..AttrChange::default() },
                writable_handle: false,
            }),
            Op::Restart => MetaOp::GetAttr(Look { ino: 1, ..Look::default() }),
        }
    }

    fn foretell(&mut self, op: &Op) -> Result<(), ErrorKind> {
        let count = self.inos.len();
        let model = &mut self.model;
        match *op {
            Op::Make { dir, name, directory } => model.make(dir % count, NAMES[name], directory),
            Op::Remove { dir, name, directory } => {
                model.remove(dir % count, NAMES[name], directory)
            }
            Op::Link { node, dir, name } => model.link(node % count, dir % count, NAMES[name]),
            Op::Rename { from, to, exchange } => {
                let place = |at: (usize, usize)| (at.0 % count, NAMES[at.1]);
                model.rename(place(from), place(to), exchange)
            }
            Op::Write { node, offset, len } if len > 0 => {
                model.write(node % count, offset, &vec![len as u8; len])
            }
            Op::Write { node, .. } => model.write(node % count, 0, b""),
            Op::Truncate { node, length } => model.truncate(node % count, length),
            Op::Restart => Ok(()),
        }
    }

    async fn step(mut self, op: &Op, twice: bool) -> Self {
        if matches!(op, Op::Restart) {
            self.world = self.world.killed().await;
            assert!(self.world.open_session(self.world.session, &[]).await.resumed);
            self.world.resume_shares().await;
            return self;
        }
        let message = self.message(op);
        let before = self.model.clone();
        let expected = self.foretell(op);
        if expected.is_err() {
            self.model = before;
        }
        self.seq += 1;
        let root = self.world.root();
        let answered = self.seq.saturating_sub(3);
        let answer = root.call_seq(self.seq, answered, message.clone()).await;
        if twice && answer.is_ok() {
            let again = root.call_seq(self.seq, answered, message).await;
            assert_eq!(again, answer, "{op:?} sent twice");
        }
        if let Ok(MetaAnswer::Created(created)) = &answer {
            self.inos.push(created.attr.ino);
        }
        assert_eq!(answer.map(drop).map_err(|e| e.kind), expected, "{op:?}");
        // The model knows no moment in which a file that was replaced is still there.
        self.world.all_done().await;
        self.world.renew_shares().await;
        self
    }

    async fn compare(&mut self) {
        let root = self.world.root();
        let mut alive = 0;
        for (number, node) in self.model.nodes.iter().enumerate() {
            let ino = self.inos[number];
            match node {
                Node::Gone => assert_eq!(kind(root.getattr(ino).await), ErrorKind::Stale),
                Node::Dir { entries, .. } => {
                    let mut names = root.names(ino).await;
                    names.sort();
                    assert_eq!(names, entries.keys().cloned().collect::<Vec<_>>());
                    for (name, child) in entries {
                        assert_eq!(root.lookup(ino, name).await.unwrap().ino, self.inos[*child]);
                    }
                    alive += 1;
                }
                Node::File { links, contents } => {
                    assert_eq!(root.getattr(ino).await.unwrap().nlink, *links);
                    assert_eq!(root.read(ino).await.unwrap().unwrap(), contents[..]);
                    alive += 1;
                }
            }
        }
        assert_eq!(check_shares(&*self.world.kv, self.world.shares).await, alive);
        self.world.until(async || self.world.inodes().await == alive as u64).await;
    }
}

async fn run(ops: Vec<(Op, bool)>, seed: u64, rates: Rates, shares: u32) {
    let kv = Arc::new(MemoryKv::adversarial(seed, rates));
    let world = World::of_shares(kv, options(), shares).await;
    let mut pair = Pair { world, model: Model::new(), inos: vec![1], seq: 0 };
    for (op, twice) in &ops {
        pair = pair.step(op, *twice).await;
    }
    pair.compare().await;
    pair.world.server.stop().await.unwrap();
}

fn run_on_calm_and_rough_stores(ops: Vec<(Op, bool)>, seed: u64, shares: u32) {
    block_on(run(ops.clone(), seed, Rates::CALM, shares));
    block_on(run(ops, seed, Rates { suspend: 0.1, ..Rates::ROUGH }, shares));
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_server_agrees_with_the_model(
        ops in proptest::collection::vec((op(), any::<bool>()), 1..80),
        seed in any::<u64>(),
    ) {
        run_on_calm_and_rough_stores(ops, seed, 1);
    }

    #[test]
    fn several_shares_agree_with_the_model(
        ops in proptest::collection::vec((op(), any::<bool>()), 1..80),
        seed in any::<u64>(),
    ) {
        run_on_calm_and_rough_stores(ops, seed, 3);
    }
}
