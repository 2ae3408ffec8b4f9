//! Values that several bodies share, and their conversions from and to `types`.

use prost::{Message, Oneof};
use strake_types as t;
use strake_types::layout::{Groups, LayoutTemplate, Strip};

/// [`t::Timestamp`].
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    #[prost(sint64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds.
    #[prost(uint32, tag = "2")]
    pub nanos: u32,
}

/// [`t::Credentials`].
#[derive(Clone, PartialEq, Message)]
pub struct Cred {
    /// Effective user.
    #[prost(uint32, tag = "1")]
    pub uid: u32,
    /// Effective group.
    #[prost(uint32, tag = "2")]
    pub gid: u32,
    /// Supplementary groups.
    #[prost(uint32, repeated, tag = "3")]
    pub groups: Vec<u32>,
    /// The mount's kernel has checked permissions.
    #[prost(bool, tag = "4")]
    pub checked: bool,
}

/// [`t::Attr`].
#[derive(Clone, PartialEq, Message)]
pub struct Attributes {
    /// Inode number.
    #[prost(uint64, tag = "1")]
    pub ino: u64,
    /// [`t::FileKind`] as its number.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Permission bits.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    /// Hard links.
    #[prost(uint32, tag = "6")]
    pub nlink: u32,
    /// Device number.
    #[prost(uint32, tag = "7")]
    pub rdev: u32,
    /// Length in bytes.
    #[prost(uint64, tag = "8")]
    pub length: u64,
    /// Bytes occupied.
    #[prost(uint64, tag = "9")]
    pub occupied: u64,
    /// Last read.
    #[prost(message, required, tag = "10")]
    pub atime: Time,
    /// Last change of contents.
    #[prost(message, required, tag = "11")]
    pub mtime: Time,
    /// Last change of the inode.
    #[prost(message, required, tag = "12")]
    pub ctime: Time,
    /// Creation.
    #[prost(message, required, tag = "13")]
    pub btime: Time,
    /// Grows with every change, by one; and by more than all of them when changes may have been lost with the power of the
    /// server's machine (docs/FORMATS.md).
    #[prost(uint64, tag = "14")]
    pub version: u64,
    /// Contents lie inside the inode.
    #[prost(bool, tag = "15")]
    pub inline: bool,
    /// Where the contents of a regular file lie.
    #[prost(message, optional, tag = "16")]
    pub layout: Option<FileLayout>,
    /// It surely has neither extended attributes nor ACLs.
    #[prost(bool, tag = "17")]
    pub no_xattrs: bool,
    /// The caller has a lease on the inode: no other changes it before the lease is recalled or over.
    #[prost(bool, tag = "18")]
    pub leased: bool,
    /// Answers to a name: the caller has one on the directory, too, so the name may be believed as well.
    #[prost(bool, tag = "19")]
    pub name_leased: bool,
    /// Of a directory: the number of the exclusive lease that the caller has on it; 0: none. Nobody else has one, and who
    /// comes there waits for what the caller changes behind ([`MetaOp::Behind`](super::meta::MetaOp::Behind)).
    #[prost(uint64, tag = "20")]
    pub exclusive: u64,
}

/// [`t::Distribution`].
#[derive(Clone, PartialEq, Message)]
pub struct Dist {
    /// 1 simple_stripe, 2 basic, 3 varstrip, 4 twod_stripe, 5 progressive.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// twod_stripe: runs of slots.
    #[prost(uint32, tag = "2")]
    pub groups: u32,
    /// twod_stripe: rounds on one run.
    #[prost(uint32, tag = "3")]
    pub factor: u32,
    /// varstrip: slots, one per strip.
    #[prost(uint32, repeated, tag = "4")]
    pub strip_slots: Vec<u32>,
    /// varstrip: bytes, one per strip.
    #[prost(uint64, repeated, tag = "5")]
    pub strip_bytes: Vec<u64>,
}

/// [`t::Layout`].
#[derive(Clone, PartialEq, Message)]
pub struct FileLayout {
    /// Bytes of a chunk.
    #[prost(uint64, tag = "1")]
    pub chunk_size: u64,
    /// Distribution.
    #[prost(message, required, tag = "2")]
    pub distribution: Dist,
    /// Stripe width.
    #[prost(uint32, tag = "3")]
    pub width: u32,
    /// Seed of the permutation.
    #[prost(uint64, tag = "4")]
    pub seed: u64,
    /// Size of the group table, or 0 where `list` counts.
    #[prost(uint32, tag = "5")]
    pub table: u32,
    /// Explicit groups.
    #[prost(uint32, repeated, tag = "6")]
    pub list: Vec<u32>,
    /// Copies that the groups of the table keep; 0 (from an earlier release) is 1. Beside a list: 0, or it is what targets that
    /// were nearly full had left of the table of so many.
    #[prost(uint32, tag = "7")]
    pub copies: u32,
    /// Who acknowledges: 0 all in-sync copies, 1 the primary.
    #[prost(uint32, tag = "8")]
    pub ack: u32,
    /// Copies that must be in sync for a change; 0 (from an earlier release) is 1.
    #[prost(uint32, tag = "9")]
    pub min_copies: u32,
    /// What clients see of each other's work: 0 strict, 1 close-to-open, 2 parallel.
    #[prost(uint32, tag = "10")]
    pub consistency: u32,
    /// The width that a file was to have whose list is what nearly full targets had left; 0: the one that it has.
    #[prost(uint32, tag = "11")]
    pub wanted_width: u32,
}

/// [`LayoutTemplate`].
#[derive(Clone, PartialEq, Message)]
pub struct Template {
    /// Bytes of a chunk.
    #[prost(uint64, optional, tag = "1")]
    pub chunk_size: Option<u64>,
    /// Distribution.
    #[prost(message, optional, tag = "2")]
    pub distribution: Option<Dist>,
    /// Stripe width; 0 is all.
    #[prost(uint32, optional, tag = "3")]
    pub width: Option<u32>,
    /// Explicit groups; empty means unset.
    #[prost(uint32, repeated, tag = "4")]
    pub list: Vec<u32>,
    /// Copies of every chunk.
    #[prost(uint32, optional, tag = "5")]
    pub copies: Option<u32>,
    /// Who acknowledges: 0 all in-sync copies, 1 the primary.
    #[prost(uint32, optional, tag = "6")]
    pub ack: Option<u32>,
    /// Copies that must be in sync for a change.
    #[prost(uint32, optional, tag = "7")]
    pub min_copies: Option<u32>,
    /// What clients see of each other's work, as in [`FileLayout`].
    #[prost(uint32, optional, tag = "8")]
    pub consistency: Option<u32>,
}

/// [`t::SetTime`].
#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum TimeChoice {
    /// The server's present time.
    #[prost(bool, tag = "1")]
    Now(bool),
    /// This time.
    #[prost(message, tag = "2")]
    At(Time),
}

/// A [`TimeChoice`] as a field.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TimeSet {
    /// Which time.
    #[prost(oneof = "TimeChoice", tags = "1, 2")]
    pub choice: Option<TimeChoice>,
}

/// [`t::SetAttr`].
#[derive(Clone, PartialEq, Message)]
pub struct AttrChange {
    /// Permission bits.
    #[prost(uint32, optional, tag = "1")]
    pub mode: Option<u32>,
    /// Owner.
    #[prost(uint32, optional, tag = "2")]
    pub uid: Option<u32>,
    /// Group.
    #[prost(uint32, optional, tag = "3")]
    pub gid: Option<u32>,
    /// Length.
    #[prost(uint64, optional, tag = "4")]
    pub length: Option<u64>,
    /// Access time.
    #[prost(message, optional, tag = "5")]
    pub atime: Option<TimeSet>,
    /// Modification time.
    #[prost(message, optional, tag = "6")]
    pub mtime: Option<TimeSet>,
    /// Change time.
    #[prost(message, optional, tag = "7")]
    pub ctime: Option<Time>,
    /// With another length setuid and setgid are taken back.
    #[prost(bool, tag = "8")]
    pub drop_setid: bool,
}

impl From<t::Timestamp> for Time {
    fn from(v: t::Timestamp) -> Self {
        Time { seconds: v.seconds, nanos: v.nanos }
    }
}

impl From<Time> for t::Timestamp {
    fn from(v: Time) -> Self {
        t::Timestamp { seconds: v.seconds, nanos: v.nanos.min(999_999_999) }
    }
}

impl From<&t::Credentials> for Cred {
    fn from(v: &t::Credentials) -> Self {
        Cred { uid: v.uid, gid: v.gid, groups: v.groups.clone(), checked: v.checked }
    }
}

impl From<Cred> for t::Credentials {
    fn from(v: Cred) -> Self {
        t::Credentials { uid: v.uid, gid: v.gid, groups: v.groups, checked: v.checked }
    }
}

impl From<&t::Distribution> for Dist {
    fn from(v: &t::Distribution) -> Self {
        match v {
            t::Distribution::SimpleStripe => Dist { kind: 1, ..Dist::default() },
            t::Distribution::Basic => Dist { kind: 2, ..Dist::default() },
            t::Distribution::Varstrip(strips) => Dist {
                kind: 3,
                strip_slots: strips.iter().map(|s| s.slot).collect(),
                strip_bytes: strips.iter().map(|s| s.bytes).collect(),
                ..Dist::default()
            },
            t::Distribution::TwodStripe { groups, factor } => {
                Dist { kind: 4, groups: *groups, factor: *factor, ..Dist::default() }
            }
            t::Distribution::Progressive => Dist { kind: 5, ..Dist::default() },
        }
    }
}

impl TryFrom<Dist> for t::Distribution {
    type Error = t::Error;

    fn try_from(v: Dist) -> t::Result<Self> {
        Ok(match v.kind {
            1 => t::Distribution::SimpleStripe,
            2 => t::Distribution::Basic,
            3 => {
                let strips = v.strip_slots.iter().zip(&v.strip_bytes);
                let strips = strips.map(|(&slot, &bytes)| Strip { slot, bytes });
                t::Distribution::Varstrip(strips.collect())
            }
            4 => t::Distribution::TwodStripe { groups: v.groups, factor: v.factor },
            5 => t::Distribution::Progressive,
            other => {
                let detail = format!("distribution number {other} (from a newer release?)");
                return Err(t::Error::with(t::ErrorKind::Malformed, detail));
            }
        })
    }
}

impl FileLayout {
    /// What clients see of each other's work; of a number that this release does not know, all.
    pub fn consistency(&self) -> t::Consistency {
        consistency_of(self.consistency).unwrap_or_default()
    }
}

impl Attributes {
    /// What clients see of each other's work on the contents. The layout of a directory is that of files to come.
    pub fn consistency(&self) -> t::Consistency {
        let own = self.layout.as_ref().filter(|_| self.kind == t::FileKind::File as u32);
        own.map(FileLayout::consistency).unwrap_or_default()
    }
}

impl From<&t::Layout> for FileLayout {
    fn from(v: &t::Layout) -> Self {
        let (table, list, copies) = match &v.groups {
            Groups::Table { size, copies } => (*size, Vec::new(), *copies),
            Groups::List(list) => {
                let copies = if v.around_full.is_some() { v.copies() } else { 0 };
                (0, list.iter().map(|g| g.0).collect(), copies)
            }
        };
        FileLayout {
            chunk_size: v.chunk_size,
            distribution: (&v.distribution).into(),
            width: v.width,
            seed: v.seed,
            table,
            list,
            copies,
            ack: v.safety.ack as u32,
            // What most files have is not written.
            min_copies: Some(v.safety.min_copies).filter(|&min| min > 1).unwrap_or(0),
            consistency: v.consistency as u32,
            wanted_width: v.around_full.filter(|&wanted| wanted != v.width).unwrap_or(0),
        }
    }
}

impl TryFrom<FileLayout> for t::Layout {
    type Error = t::Error;

    fn try_from(v: FileLayout) -> t::Result<Self> {
        let groups = match v.table {
            0 => Groups::List(v.list.into_iter().map(t::GroupId).collect()),
            size => Groups::Table { size, copies: v.copies.max(1) },
        };
        let is_around = matches!(groups, Groups::List(_)) && v.copies > 0;
        let wanted = if v.wanted_width == 0 { v.width } else { v.wanted_width };
        let layout = t::Layout {
            chunk_size: v.chunk_size,
            distribution: v.distribution.try_into()?,
            width: v.width,
            seed: v.seed,
            around_full: is_around.then_some(wanted),
            groups,
            safety: t::Safety { ack: ack_of(v.ack)?, min_copies: v.min_copies.max(1) },
            consistency: consistency_of(v.consistency)?,
        };
        layout.validate()?;
        Ok(layout)
    }
}

impl From<&LayoutTemplate> for Template {
    fn from(v: &LayoutTemplate) -> Self {
        Template {
            chunk_size: v.chunk_size,
            distribution: v.distribution.as_ref().map(Into::into),
            width: v.width,
            list: v.groups.iter().flatten().map(|g| g.0).collect(),
            copies: v.copies,
            ack: v.ack.map(|ack| ack as u32),
            min_copies: v.min_copies,
            consistency: v.consistency.map(|consistency| consistency as u32),
        }
    }
}

fn ack_of(number: u32) -> t::Result<t::Ack> {
    match number {
        0 => Ok(t::Ack::All),
        1 => Ok(t::Ack::Primary),
        other => {
            let detail = format!("acknowledgement number {other} (from a newer release?)");
            Err(t::Error::with(t::ErrorKind::Malformed, detail))
        }
    }
}

fn consistency_of(number: u32) -> t::Result<t::Consistency> {
    match number {
        0 => Ok(t::Consistency::Strict),
        1 => Ok(t::Consistency::CloseToOpen),
        2 => Ok(t::Consistency::Parallel),
        other => {
            let detail = format!("consistency number {other} (from a newer release?)");
            Err(t::Error::with(t::ErrorKind::Malformed, detail))
        }
    }
}

impl TryFrom<Template> for LayoutTemplate {
    type Error = t::Error;

    fn try_from(v: Template) -> t::Result<Self> {
        let groups: Vec<_> = v.list.into_iter().map(t::GroupId).collect();
        // Earlier releases have stored volumes that ask for more copies in sync than there are: these count as all.
        let copies_max = v.copies.unwrap_or(u32::MAX);
        let template = LayoutTemplate {
            chunk_size: v.chunk_size,
            distribution: v.distribution.map(TryInto::try_into).transpose()?,
            width: v.width,
            groups: (!groups.is_empty()).then_some(groups),
            copies: v.copies,
            ack: v.ack.map(ack_of).transpose()?,
            min_copies: v.min_copies.map(|min| min.min(copies_max)),
            consistency: v.consistency.map(consistency_of).transpose()?,
        };
        template.validate()?;
        Ok(template)
    }
}

impl From<&t::Attr> for Attributes {
    fn from(v: &t::Attr) -> Self {
        Attributes {
            ino: v.ino.0,
            kind: v.kind as u32,
            mode: v.mode,
            uid: v.uid,
            gid: v.gid,
            nlink: v.nlink,
            rdev: v.rdev,
            length: v.length,
            occupied: v.occupied,
            atime: v.atime.into(),
            mtime: v.mtime.into(),
            ctime: v.ctime.into(),
            btime: v.btime.into(),
            version: v.version,
            inline: v.inline,
            no_xattrs: v.no_xattrs,
            layout: v.layout.as_ref().map(Into::into),
            leased: false,
            name_leased: false,
            exclusive: 0,
        }
    }
}

impl TryFrom<Attributes> for t::Attr {
    type Error = t::Error;

    fn try_from(v: Attributes) -> t::Result<Self> {
        Ok(t::Attr {
            ino: t::Ino(v.ino),
            kind: t::FileKind::of_message(v.kind)?,
            mode: v.mode & 0o7777,
            uid: v.uid,
            gid: v.gid,
            nlink: v.nlink,
            rdev: v.rdev,
            length: v.length,
            occupied: v.occupied,
            atime: v.atime.into(),
            mtime: v.mtime.into(),
            ctime: v.ctime.into(),
            btime: v.btime.into(),
            version: v.version,
            inline: v.inline,
            no_xattrs: v.no_xattrs,
            layout: v.layout.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<t::SetTime> for TimeSet {
    fn from(v: t::SetTime) -> Self {
        let choice = match v {
            t::SetTime::Now => TimeChoice::Now(true),
            t::SetTime::At(time) => TimeChoice::At(time.into()),
        };
        TimeSet { choice: Some(choice) }
    }
}

impl From<TimeSet> for t::SetTime {
    fn from(v: TimeSet) -> Self {
        match v.choice {
            Some(TimeChoice::At(time)) => t::SetTime::At(time.into()),
            _ => t::SetTime::Now,
        }
    }
}

impl From<&t::SetAttr> for AttrChange {
    fn from(v: &t::SetAttr) -> Self {
        AttrChange {
            mode: v.mode,
            uid: v.uid,
            gid: v.gid,
            length: v.length,
            atime: v.atime.map(Into::into),
            mtime: v.mtime.map(Into::into),
            ctime: v.ctime.map(Into::into),
            drop_setid: v.drop_setid,
        }
    }
}

impl From<AttrChange> for t::SetAttr {
    fn from(v: AttrChange) -> Self {
        t::SetAttr {
            mode: v.mode,
            uid: v.uid,
            gid: v.gid,
            length: v.length,
            atime: v.atime.map(Into::into),
            mtime: v.mtime.map(Into::into),
            ctime: v.ctime.map(Into::into),
            drop_setid: v.drop_setid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::GroupTables;

    /// A file that went around nearly full targets was taken for one on listed groups, and kept to those.
    #[test]
    fn a_list_that_nobody_chose_is_told_from_one_that_somebody_did() {
        let list: Vec<_> = [2, 0].map(|at| t::GroupId::of_class(2, at)).to_vec();
        let listed = LayoutTemplate { groups: Some(list), ..LayoutTemplate::default() };
        let listed = listed.resolve(42, &GroupTables::default());
        let around = |wanted| t::Layout { around_full: Some(wanted), ..listed.clone() };
        let cases = [(listed.clone(), 0, 0), (around(2), 2, 0), (around(3), 2, 3)];
        for (layout, copies, wanted) in cases {
            let sent = FileLayout::from(&layout);
            assert_eq!((sent.table, sent.copies, sent.wanted_width), (0, copies, wanted));
            let sent = FileLayout::decode(&*sent.encode_to_vec()).unwrap();
            assert_eq!(t::Layout::try_from(sent).unwrap(), layout);
        }
    }

    /// Such a volume was refused by everybody who read the map, for good.
    #[test]
    fn more_copies_in_sync_than_there_are_count_as_all_where_they_are_stored() {
        let read = |copies, min_copies| {
            let stored = Template { copies, min_copies, ..Template::default() };
            LayoutTemplate::try_from(stored).map(|template| template.min_copies)
        };
        assert_eq!(read(Some(1), Some(2)).unwrap(), Some(1));
        assert_eq!(read(Some(3), Some(2)).unwrap(), Some(2));
        assert_eq!(read(None, Some(2)).unwrap(), Some(2));
        for (copies, min_copies) in [(Some(1), Some(0)), (None, Some(9)), (Some(0), Some(1))] {
            assert!(read(copies, min_copies).is_err(), "{copies:?} {min_copies:?}");
        }
    }
}
