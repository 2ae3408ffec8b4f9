//! What the operations of a metadata server and their answers tell of inodes and names.

use bytes::Bytes;
use strake_types::{Error, ErrorKind, Ino, name};
use strake_wire::message::common::Attributes;
use strake_wire::message::meta::{self, MetaAnswer, MetaOp};

/// A name as an answer tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: Bytes,
    /// What it stands for, if the caller has a lease on the directory.
    pub leads: Option<Option<Ino>>,
}

/// True for what may change something that others see.
pub(crate) fn is_change(op: &MetaOp) -> bool {
    use MetaOp::*;
    match op {
        Open(open) => open.mode.truncate,
        SetAttr(_) | Create(_) | Link(_) | Unlink(_) | Rename(_) | Publish(_) | WriteInline(_)
        | MoveOut(_) | SetXattr(_) | RemoveXattr(_) | SetTemplate(_) => true,
        _ => false,
    }
}

/// The file of an open that changes nothing but how often it counts as open.
pub(crate) fn only_opens(op: &MetaOp) -> Option<Ino> {
    match op {
        MetaOp::Open(open) if !open.mode.truncate => Some(Ino(open.ino)),
        _ => None,
    }
}

/// True for what may set the length of a file.
pub(crate) fn may_cut(op: &MetaOp) -> bool {
    match op {
        MetaOp::Open(open) => open.mode.truncate,
        MetaOp::SetAttr(set) => set.change.length.is_some(),
        MetaOp::Create(create) => {
            !create.exclusive && create.open.is_some_and(|mode| mode.truncate)
        }
        _ => false,
    }
}

/// The inode that a change names by its number.
pub(crate) fn inode(op: &MetaOp) -> Option<Ino> {
    use MetaOp::*;
    Some(Ino(match op {
        Open(open) => open.ino,
        SetAttr(set) => set.ino,
        Link(link) => link.ino,
        Publish(publish) => publish.ino,
        WriteInline(write) => write.ino,
        MoveOut(inode) => inode.ino,
        SetXattr(xattr) | RemoveXattr(xattr) => xattr.ino,
        SetTemplate(set) => set.ino,
        _ => return None,
    }))
}

/// What of the changes of names that were answered before they were sent has to be made before something else is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// None of it.
    Nothing,
    /// All.
    Everything,
    /// What touches these.
    These(Vec<Ino>),
}

/// The same of an operation which is about these inodes. What the server asks of us waits for nothing: somebody waits for that.
/// Nor does who looks what is wrong with clients, and ends one. What changes something comes after all of them: should this mount die,
/// nothing is left of what a program has done later without what it had done before.
pub(crate) fn comes_after(op: &MetaOp, about: Vec<Ino>) -> After {
    use MetaOp::*;
    match op {
        OpenSession(_) | RenewSession(_) | Recalls(_) | Told(_) | Behind(_) | ListClients(_)
        | EvictClient(_) => After::Nothing,
        op if is_change(op) || matches!(op, Sync(_)) => After::Everything,
        _ => match op.place() {
            None => After::Everything,
            Some(place) => After::These(about.into_iter().chain([place]).collect()),
        },
    }
}

/// True for what may take the last name of a file away.
pub(crate) fn takes_names_away(op: &MetaOp) -> bool {
    matches!(op, MetaOp::Unlink(_) | MetaOp::Rename(_) | MetaOp::Behind(_))
}

/// True for what may change inodes of other shares than the one that carries it out.
pub(crate) fn may_span_shares(op: &MetaOp) -> bool {
    matches!(op, MetaOp::Link(_) | MetaOp::Unlink(_) | MetaOp::Rename(_))
}

/// What a change names in directories.
pub(crate) fn places(op: &MetaOp) -> [Option<&meta::Name>; 2] {
    match op {
        MetaOp::Create(create) => [Some(&create.at), None],
        MetaOp::Link(link) => [Some(&link.to), None],
        MetaOp::Unlink(unlink) => [Some(&unlink.at), None],
        MetaOp::Rename(rename) => [Some(&rename.from), Some(&rename.to)],
        _ => [None, None],
    }
}

/// Every inode that a change names by its number.
pub(crate) fn touched(op: &MetaOp) -> Vec<Ino> {
    let directories = places(op).map(|at| at.map(|at| Ino(at.parent)));
    directories.into_iter().chain([inode(op)]).flatten().collect()
}

/// True for an error that says that nothing was done, and why.
pub(crate) fn is_refusal(error: &Error) -> bool {
    use ErrorKind::*;
    matches!(
        error.kind,
        NotFound
            | Exists
            | NotDirectory
            | IsDirectory
            | NotEmpty
            | AccessDenied
            | NotPermitted
            | Invalid
            | NameTooLong
            | FileTooBig
            | TooManyLinks
            | SymlinkLoop
            | Stale
            | NoAttribute
            | NotSupported
            | TooBig
            | WouldBlock
            | Deadlock
    )
}

/// True for an error by which the server ends its work on a request. After the others it may be at it still, or have it
/// before it: too little was heard of it.
pub(crate) fn is_last_word(error: &Error) -> bool {
    use ErrorKind::*;
    !error.is_passing() && !matches!(error.kind, TimedOut | WrongPeer | Malformed)
}

/// All attributes in an answer.
pub(crate) fn each_attributes(answer: &MetaAnswer, mut each: impl FnMut(&Attributes)) {
    match answer {
        MetaAnswer::Entry(attr) => each(attr),
        MetaAnswer::Opened(opened) => each(&opened.attr),
        MetaAnswer::Named(named) => {
            each(&named.attr);
            named.parent.iter().for_each(each);
        }
        MetaAnswer::Created(created) => {
            // An open tells the same once more.
            each(&created.attr);
            created.parent.iter().for_each(each);
        }
        MetaAnswer::Renamed(renamed) => {
            each(&renamed.moved);
            let others = [&renamed.other, &renamed.parent, &renamed.new_parent];
            others.into_iter().flatten().for_each(each);
        }
        MetaAnswer::Page(page) => {
            page.entries.iter().filter_map(|entry| entry.attr.as_ref()).for_each(each);
        }
        _ => {}
    }
}

fn told(at: &meta::Name, leased: bool, leads: Option<u64>) -> Option<Told> {
    // What the dots stand for is no matter of the directory's names; a file may have no name at all.
    if at.name.is_empty() || name::is_dot(&at.name) {
        return None;
    }
    let leads = leased.then_some(leads.map(Ino));
    Some(Told { dir: Ino(at.parent), name: at.name.clone(), leads })
}

/// The names that an answer tells of; but for those of a page.
pub(crate) fn names(op: &MetaOp, answer: &MetaAnswer) -> [Option<Told>; 2] {
    let leased = |attr: &Option<Attributes>| attr.as_ref().is_some_and(|attr| attr.leased);
    match (op, answer) {
        (MetaOp::Lookup(at), MetaAnswer::Entry(attr)) => {
            [told(at, attr.name_leased, Some(attr.ino)), None]
        }
        (MetaOp::Lookup(at), MetaAnswer::Missing(_)) => [told(at, true, None), None],
        (MetaOp::Create(create), MetaAnswer::Created(created)) => {
            [told(&create.at, leased(&created.parent), Some(created.attr.ino)), None]
        }
        (MetaOp::Link(link), MetaAnswer::Named(named)) => {
            [told(&link.to, leased(&named.parent), Some(named.attr.ino)), None]
        }
        (MetaOp::Unlink(unlink), MetaAnswer::Named(named)) => {
            [told(&unlink.at, leased(&named.parent), None), None]
        }
        (MetaOp::Rename(rename), MetaAnswer::Renamed(renamed)) => renamed_names(rename, renamed),
        _ => [None, None],
    }
}

fn renamed_names(rename: &meta::Rename, renamed: &meta::Renamed) -> [Option<Told>; 2] {
    let leased = |attr: &Option<Attributes>| attr.as_ref().is_some_and(|attr| attr.leased);
    let other = renamed.other.as_ref().map(|other| other.ino);
    // Two names of one file: neither was moved.
    let moved = other != Some(renamed.moved.ino);
    let from = leased(&renamed.parent);
    let to = match rename.from.parent == rename.to.parent {
        true => from,
        false => leased(&renamed.new_parent),
    };
    let left = other.filter(|_| rename.exchange);
    [
        told(&rename.from, from && moved, left),
        told(&rename.to, to && moved, Some(renamed.moved.ino)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_wire::message::meta::{Name, Rename, Renamed};

    fn at(parent: u64, name: &'static str) -> Name {
        Name { parent, name: Bytes::from_static(name.as_bytes()) }
    }

    fn leased(ino: u64) -> Attributes {
        Attributes { ino, leased: true, ..Attributes::default() }
    }

    /// A file that said that all is in place was there, and what it spoke of was not.
    #[test]
    fn changes_come_after_all_names_that_were_answered_and_looks_after_those_that_they_are_about() {
        let create = MetaOp::Create(meta::Create { at: at(7, "done"), ..meta::Create::default() });
        let write = MetaOp::WriteInline(meta::WriteInline::default());
        for op in [create, write, MetaOp::Sync(meta::Inode { ino: 7 })] {
            assert_eq!(comes_after(&op, Vec::new()), After::Everything);
        }
        let look = MetaOp::Lookup(at(7, "a"));
        assert_eq!(comes_after(&look, Vec::new()), After::These(vec![Ino(7)]));
        assert_eq!(comes_after(&MetaOp::Told(meta::Told::default()), Vec::new()), After::Nothing);
    }

    #[test]
    fn a_rename_tells_of_both_names() {
        let leads = |rename: &Rename, renamed: &Renamed| {
            let told =
                names(&MetaOp::Rename(rename.clone()), &MetaAnswer::Renamed(renamed.clone()));
            told.map(|told| told.unwrap().leads)
        };
        let mut rename = Rename { from: at(1, "a"), to: at(2, "b"), ..Rename::default() };
        let mut renamed = Renamed {
            moved: leased(7),
            other: Some(leased(8)),
            parent: Some(leased(1)),
            new_parent: Some(leased(2)),
        };
        assert_eq!(leads(&rename, &renamed), [Some(None), Some(Some(Ino(7)))]);
        rename.exchange = true;
        assert_eq!(leads(&rename, &renamed), [Some(Some(Ino(8))), Some(Some(Ino(7)))]);
        renamed.new_parent = None;
        assert_eq!(leads(&rename, &renamed), [Some(Some(Ino(8))), None]);
        rename.to.parent = 1;
        assert_eq!(leads(&rename, &renamed)[1], Some(Some(Ino(7))), "the same directory");
        renamed.other = Some(leased(7));
        assert_eq!(leads(&rename, &renamed), [None, None], "nothing was moved");
    }

    #[test]
    fn a_name_is_believed_for_the_lease_on_its_directory() {
        let entry = |attr: Attributes| {
            let lookup = MetaOp::Lookup(at(1, "a"));
            names(&lookup, &MetaAnswer::Entry(attr))[0].clone().unwrap().leads
        };
        assert_eq!(entry(leased(7)), None, "the inode alone");
        let named = Attributes { ino: 7, name_leased: true, ..Attributes::default() };
        assert_eq!(entry(named), Some(Some(Ino(7))));
    }
}
