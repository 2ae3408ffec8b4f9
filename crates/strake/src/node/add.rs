//! A new target in a running server.
//!
//! The manager first gives a number that nobody knows of. Then the target is made, opened and served,
//! and only then it enters the map: nobody is ever sent to a target that is not there. In `node.json` it
//! has no number until it has entered, so a server that dies on the way asks the manager at its next
//! start ([`super::added`]). What does not enter is taken away again.

use super::identity::{Node, TargetRecord};
use super::list::TargetList;
use super::patrol::Patrol;
use super::stores::{self, ROOM_BYTES_MIN, Target, same_place};
use crate::failure::{Context, Failure, Outcome, Plain};
use crate::size;
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strake_base::disk::RealDisk;
use strake_base::process::boot_id;
use strake_engine::chunk::Identity;
use strake_storage::{Opener, StorageServer};
use strake_types::{Error, ErrorKind, Result, ServerId, TargetId};
use strake_wire::map::MapView;
use strake_wire::message::manager::{
    self as wire, ManagerAnswer, ManagerOp, ManagerRequest, TargetSpec,
};
use strake_wire::message::storage::{AddTarget, Added};
use strake_wire::service::ManagerService;
use tokio::sync::Mutex;

/// Name of a target's directory within the one that is given.
pub const TARGET: &str = "target";
/// What a directory may hold that is to get a target.
const HARMLESS: [&str; 2] = ["lost+found", TARGET];
/// How long the manager is asked, and the pause between two tries.
const ENTER_WAIT: Duration = Duration::from_secs(15);
const ENTER_PAUSE: Duration = Duration::from_millis(300);

/// Makes new targets, one at a time.
pub struct Adder {
    /// Where `node.json` is.
    pub home: PathBuf,
    /// This server.
    pub server: ServerId,
    /// Its targets.
    pub targets: TargetList,
    /// Who serves them.
    pub storage: Weak<StorageServer>,
    /// Who gives the number.
    pub manager: Arc<dyn ManagerService>,
    /// What the cluster looks like.
    pub map: Arc<MapView>,
    /// Who verifies them now and then.
    pub patrol: Arc<Patrol>,
    /// As in [`super::NodeOptions`].
    pub disk_rate: Option<u64>,
    /// Held while one is made, or goes.
    pub turn: Mutex<()>,
}

#[async_trait]
impl Opener for Adder {
    async fn open(&self, wanted: AddTarget) -> Result<Added> {
        let _turn = self.turn.lock().await;
        let told = |failure: Failure| {
            let next = failure.next.map(|next| format!("; {next}")).unwrap_or_default();
            Error::with(ErrorKind::Invalid, format!("{}{next}", failure.cause))
        };
        self.add(Path::new(&wanted.dir), wanted.dry_run).await.map_err(told)
    }
}

impl Adder {
    async fn add(&self, dir: &Path, dry_run: bool) -> Outcome<Added> {
        let node = Node::read(&self.home)?;
        let path = dir.join(TARGET);
        let begun = node.target_at(&path).is_some_and(|record| record.target == 0);
        if let Some(target) = self.targets.at(&path).filter(|_| begun && !dry_run) {
            // It was made, but whether it has entered nobody knows.
            return self.enter(node, &target).await;
        }
        // By an old map, a target that came a moment ago would be one that has left.
        self.map.refresh().await.map_err(refusal)?;
        let dir = dir.to_owned();
        let (known, map) = (node.clone(), self.map.current());
        let look = move || look(&dir, &known, &map).map(|target| (dir, target));
        let (dir, target) = blocking(look).await?;
        if dry_run {
            return Ok(self.describe(&target));
        }
        let number = self.ask(&target.spec()).await.map_err(refusal)?;
        let fresh = !dir.exists();
        let (cluster, disk_rate) = (node.cluster.clone(), self.disk_rate);
        let target = blocking(move || make(target, &cluster, number, disk_rate)).await;
        let target = match target {
            Ok(target) => Arc::new(target),
            Err(failure) => {
                discard(&path, fresh.then_some(&dir));
                let next = "see to the disk (is it full?), and give the same command again";
                return Err(Failure { next: failure.next.or(Some(next.into())), ..failure });
            }
        };
        self.serve(&target);
        let entered = match self.remember(node, &target) {
            Ok(node) => self.enter(node, &target).await,
            Err(failure) => Err(failure),
        };
        if entered.is_err() && !self.has_begun(&path) {
            self.withdraw(&target);
            drop(target);
            discard(&path, fresh.then_some(&dir));
        }
        entered
    }

    /// Serves a target, and lets those on the same disk know.
    fn serve(&self, target: &Arc<Target>) {
        if let (Some(storage), Some(store)) = (self.storage.upgrade(), &target.store) {
            storage.add_target(target.id, store.clone());
        }
        self.targets.push(target.clone());
        self.share();
    }

    /// Serves a target no more, and lets those on the same disk know.
    pub fn withdraw(&self, target: &Target) {
        self.targets.remove(target.id);
        self.patrol.leave(target.id);
        if let Some(storage) = self.storage.upgrade() {
            storage.forget_target(target.id);
        }
        self.share();
    }

    fn share(&self) {
        let all = self.targets.all();
        stores::count_sharing(&all);
        if let Some(storage) = self.storage.upgrade() {
            storage.share(all.iter().map(|target| (target.id, target.sharing())));
        }
    }

    /// Notes in `node.json` that a target may be about to enter.
    fn remember(&self, mut node: Node, target: &Target) -> Outcome<Node> {
        node.targets.retain(|record| record.path != target.path);
        node.targets.push(TargetRecord { target: 0, ..target.record() });
        node.write(&self.home)?;
        Ok(node)
    }

    /// True while it may be about to enter, or may have: what cannot be read says nothing.
    fn has_begun(&self, path: &Path) -> bool {
        Node::read(&self.home).map_or(true, |node| node.target_at(path).is_some())
    }

    /// Lets a target that is served enter the cluster.
    async fn enter(&self, mut node: Node, target: &Arc<Target>) -> Outcome<Added> {
        match self.ask(&target.spec()).await {
            Ok(_) => {}
            Err(error) if is_silence(&error) => {
                return Err(Failure::new(format!(
                    "the manager does not answer whether target {} has entered: {error}",
                    target.path.display()
                ))
                .next("give the same command again when it answers (strake status)"));
            }
            Err(error) => {
                node.targets.retain(|record| record.path != target.path);
                node.write(&self.home)?;
                return Err(refusal(error));
            }
        }
        node.targets.retain(|record| record.path != target.path);
        node.targets.push(target.record());
        node.write(&self.home)?;
        self.patrol.watch_over(target);
        if let Err(error) = self.map.refresh().await {
            tracing::debug!("the map with target {} comes later: {error}", target.id);
        }
        tracing::info!("target {} was added: {}", target.id, target.path.display());
        Ok(self.describe(target))
    }

    /// Asks the manager for a number, or to let in the target that has it.
    async fn ask(&self, spec: &TargetSpec) -> Result<TargetId> {
        let end = tokio::time::Instant::now() + ENTER_WAIT;
        loop {
            match enter(&*self.manager, self.server.0, spec).await {
                Err(error) if is_silence(&error) && tokio::time::Instant::now() < end => {
                    tokio::time::sleep(ENTER_PAUSE).await;
                }
                other => return other,
            }
        }
    }

    fn describe(&self, target: &Target) -> Added {
        let spec = target.spec();
        let parts = target.sharing();
        let others = self.targets.all();
        let others = others.iter().filter(|other| other.id != target.id);
        let beside = others.filter(|other| other.device == target.device);
        Added {
            target: target.id.0,
            path: spec.path,
            total_bytes: spec.total_bytes + spec.free_bytes * (parts - 1),
            free_bytes: spec.free_bytes * parts,
            beside: beside.map(|other| other.id.0).collect(),
        }
    }
}

/// Asks the manager once. Without a number in `spec` it gives one; with it, the target enters.
pub async fn enter(
    manager: &dyn ManagerService,
    server: u32,
    spec: &TargetSpec,
) -> Result<TargetId> {
    // One that cannot be read is one that may have changed.
    let boot = boot_id().unwrap_or_default();
    let op = ManagerOp::AddTarget(wire::AddTarget { server, spec: spec.clone(), boot });
    match manager.call(ManagerRequest { op: Some(op) }).await?.answer {
        Some(ManagerAnswer::Target(id)) => Ok(TargetId(id)),
        _ => Err(Error::with(
            ErrorKind::Malformed,
            "the manager answers AddTarget with something else",
        )),
    }
}

/// Nobody knows what has become of the request.
fn is_silence(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
}

fn refusal(error: Error) -> Failure {
    match error.kind {
        ErrorKind::NotSupported => Failure::new("the manager runs a release that adds no targets")
            .next("upgrade it, or restart this server with one more directory behind --data"),
        _ if is_silence(&error) => Failure::new(format!("the manager does not answer: {error}"))
            .next("give the same command again when it does (strake status)"),
        _ => Failure::telling(&error),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.context(|| "adding a target".into())?
}

fn make(
    mut target: Target,
    cluster: &str,
    number: TargetId,
    disk_rate: Option<u64>,
) -> Outcome<Target> {
    target.added = true;
    target.format(cluster, number, disk_rate)?;
    target.begin_generation(1)?;
    Ok(target)
}

/// Takes away what was made and is no target of anybody.
fn discard(path: &Path, made: Option<&PathBuf>) {
    let gone = std::fs::remove_dir_all(path);
    let gone = gone.and_then(|()| made.map_or(Ok(()), std::fs::remove_dir));
    if let Err(error) = gone {
        tracing::debug!("{}: {error}", path.display());
    }
}

/// Looks whether a directory may get a target; changes nothing.
fn look(dir: &Path, node: &Node, map: &wire::ClusterMap) -> Outcome<Target> {
    let shown = dir.display();
    let dots = dir.components().any(|part| part == std::path::Component::ParentDir);
    if !dir.is_absolute() || dots {
        return Err(Failure::new(format!("{shown} is not an absolute path without dots"))
            .next("give the whole path of a directory on the server"));
    }
    let path = dir.join(TARGET);
    let listed = |r: &&TargetRecord| map.targets.iter().any(|target| target.spec.uuid == r.uuid);
    let own = node.targets.iter().filter(|r| r.target != 0 && r.path.exists());
    let mut own = own.filter(listed);
    if let Some(record) = own.find(|r| same_place(&r.path, &path)) {
        let number = record.target;
        return Err(Failure::new(format!("{shown} is target {number} of this server already"))
            .next("strake target list shows them, give a directory on the new disk"));
    }
    check_stranger(&path, node, map)?;
    check_directory(dir)?;
    // What has left the cluster is not missed.
    let staying = |r: &TargetRecord| r.target == 0 || listed(&r);
    let targets = node.targets.iter().filter(|r| staying(r)).cloned().collect();
    let target = Target::look(&path, &Node { targets, ..node.clone() }, false)?;
    let room = target.spec().free_bytes;
    match room < ROOM_BYTES_MIN {
        true => Err(Failure::new(format!(
            "the disk of {shown} has {} free, and a target takes {} before it holds anything",
            size::show(room),
            size::show(ROOM_BYTES_MIN)
        ))
        .next("free room there, or give a directory on another disk")),
        false => Ok(target),
    }
}

/// Refuses a directory that holds a target, by telling whose.
fn check_stranger(path: &Path, node: &Node, map: &wire::ClusterMap) -> Outcome {
    let Ok(disk) = RealDisk::new(path) else { return Ok(()) };
    let Some(found) = Identity::read(&disk).plain()? else {
        return Ok(());
    };
    let (shown, number) = (path.display(), found.target);
    if found.cluster != node.cluster {
        return Err(Failure::new(format!(
            "{shown} holds target {number} of cluster {}, this server is of cluster {}",
            found.cluster, node.cluster
        ))
        .next("give an empty directory"));
    }
    let known = map.targets.iter().find(|target| target.spec.uuid == found.uuid);
    Err(match known {
        Some(target) => {
            let server = map.servers.iter().find(|server| server.id == target.server);
            let name = server.map_or_else(|| target.server.to_string(), |s| s.name.clone());
            Failure::new(format!("{shown} holds target {number}, which belongs to server {name}")).next(
                "give an empty directory, or, if the disk was moved here for good, stop that server and restart this \
                 one with the directory behind --data",
            )
        }
        None => Failure::new(format!(
            "{shown} holds target {number}, which is not in the cluster any more"
        ))
        .next("delete that directory (the log of its server says when it is closed), give the same command again"),
    })
}

/// An empty directory that can be written, or one that can be made.
fn check_directory(dir: &Path) -> Outcome {
    let shown = dir.display();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match dir.parent().filter(|parent| parent.is_dir()) {
                Some(parent) => stores::check_writable(parent),
                None => Err(Failure::new(format!(
                    "{shown} does not exist on the server, nor does what it would be in"
                ))
                .next("mount the new disk there first, or make the directory")),
            };
        }
        Err(error) => {
            return Err(
                Failure::new(format!("{shown}: {error}")).next("give a directory on the new disk")
            );
        }
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let foreign = names.filter(|name| !HARMLESS.iter().any(|harmless| name == harmless));
    match foreign.map(|name| name.display().to_string()).min() {
        Some(name) => Err(Failure::new(format!("{shown} holds other files, as {name}"))
            .next("give an empty directory on the new disk")),
        None => stores::check_writable(dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::manager::{ClusterMap, Server, Target as Listed};

    const OURS: &str = "0123456789abcdef0123456789abcdef";
    const UUID: &str = "00000000000000000000000000000001";

    fn node() -> Node {
        Node { cluster: OURS.into(), server: 1, ..Node::default() }
    }

    fn holds(dir: &Path, cluster: &str) {
        std::fs::create_dir_all(dir.join(TARGET)).unwrap();
        let disk = RealDisk::new(&dir.join(TARGET)).unwrap();
        let identity = Identity { cluster: cluster.into(), uuid: UUID.into(), target: 7 };
        identity.write(&disk).unwrap();
    }

    /// Why a directory is refused, and what is said to do next.
    fn refused(dir: &Path, node: &Node, map: &ClusterMap) -> String {
        let failure = look(dir, node, map).err().expect("it is refused");
        assert!(failure.next.is_some(), "{failure}");
        failure.to_string()
    }

    #[test]
    fn an_empty_directory_or_one_that_can_be_made_may_get_a_target_and_looking_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        let (node, map) = (node(), ClusterMap::default());
        std::fs::create_dir(top.path().join("disk")).unwrap();
        std::fs::create_dir(top.path().join("disk/lost+found")).unwrap();
        for name in ["disk", "new"] {
            let dir = top.path().join(name);
            let target = look(&dir, &node, &map).unwrap();
            assert_eq!((target.path, target.id.0), (dir.join(TARGET), 0));
            assert!(!dir.join(TARGET).exists());
        }
        assert!(!top.path().join("new").exists());
    }

    #[test]
    fn what_belongs_to_somebody_is_refused_by_name() {
        let top = tempfile::tempdir().unwrap();
        let (dir, node) = (top.path().join("d"), node());
        holds(&dir, &"ff".repeat(16));
        let map = ClusterMap::default();
        let said = refused(&dir, &node, &map);
        assert!(said.contains("target 7 of cluster ffff"), "{said}");
        holds(&dir, OURS);
        let said = refused(&dir, &node, &map);
        assert!(
            said.contains("target 7") && said.contains("not in the cluster any more"),
            "{said}"
        );
        let spec = TargetSpec { target: 7, uuid: UUID.into(), ..TargetSpec::default() };
        let map = ClusterMap {
            servers: vec![Server { id: 3, name: "other".into(), ..Server::default() }],
            targets: vec![Listed { id: 7, server: 3, spec, ..Listed::default() }],
            ..map
        };
        let said = refused(&dir, &node, &map);
        assert!(said.contains("belongs to server other"), "{said}");
        let (path, uuid) = (dir.join(TARGET), UUID.to_owned());
        let record = TargetRecord { path, uuid, target: 7, added: false };
        let own = Node { targets: vec![record], ..node };
        std::os::unix::fs::symlink(&dir, top.path().join("link")).unwrap();
        for name in ["d", "d/", "link"] {
            let said = refused(&top.path().join(name), &own, &map);
            assert!(said.contains("is target 7 of this server already"), "{said}");
        }
        let left = ClusterMap::default();
        let said = refused(&dir, &own, &left);
        assert!(said.contains("not in the cluster any more"), "{said}");
        std::fs::remove_dir_all(dir.join(TARGET)).unwrap();
        assert!(refused(&dir, &own, &map).contains("is missing"));
        assert!(look(&dir, &own, &left).is_ok(), "who has left is not missed");
    }

    #[test]
    fn what_is_no_place_for_a_target_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let (node, map) = (node(), ClusterMap::default());
        let full = top.path().join("full");
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("letter"), "x").unwrap();
        let said = refused(&full, &node, &map);
        assert!(said.contains("holds other files, as letter"), "{said}");
        let said = refused(&full.join("letter"), &node, &map);
        assert!(said.contains("letter: "), "{said}");
        let said = refused(&top.path().join("a/b"), &node, &map);
        assert!(said.contains("does not exist on the server"), "{said}");
        for path in ["relative", "/tmp/../etc"] {
            let said = refused(Path::new(path), &node, &map);
            assert!(said.contains("not an absolute path"), "{said}");
        }
    }
}
