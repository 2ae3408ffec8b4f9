//! POSIX access control lists (POSIX.1e draft 17) and their binary form in
//! `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! The form, all little-endian: a `u32` version (2), then entries of `u16` tag, `u16` permissions
//! and `u32` id, sorted by tag and id. It is what the kernel's xattrs carry, so what one mount
//! writes any tool reads.

use crate::{Credentials, Error, ErrorKind, Result};

/// Most named users and groups in one list.
pub const ACL_NAMED_MAX: usize = 500;

const VERSION: u32 = 2;
const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;
/// Id of the entries that name nobody.
const ID_UNDEFINED: u32 = u32::MAX;

/// An access control list. Permissions are 4 read, 2 write, 1 execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// The owner's permissions.
    pub owner: u8,
    /// Named users, ascending.
    pub users: Vec<(u32, u8)>,
    /// The owning group's permissions.
    pub group: u8,
    /// Named groups, ascending.
    pub groups: Vec<(u32, u8)>,
    /// Upper bound of everything but the owner and others. Required where anybody is named.
    pub mask: Option<u8>,
    /// Everybody else's permissions.
    pub other: u8,
}

impl Acl {
    /// The list that says just what the mode says.
    pub fn from_mode(mode: u32) -> Self {
        Acl {
            owner: bits(mode >> 6),
            users: Vec::new(),
            group: bits(mode >> 3),
            groups: Vec::new(),
            mask: None,
            other: bits(mode),
        }
    }

    /// Decodes the binary form. `None`: a list without entries, which means removal.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some((header, mut rest)) = bytes.split_first_chunk::<4>() else {
            return Err(invalid("shorter than its header"));
        };
        if u32::from_le_bytes(*header) != VERSION {
            return Err(Error::with(ErrorKind::NotSupported, "ACL version other than 2"));
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let mut list = Parts::default();
        while let Some((entry, tail)) = rest.split_first_chunk::<8>() {
            let [t0, t1, p0, p1, i0, i1, i2, i3] = *entry;
            let (tag, perm) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
            list.add(tag, perm, u32::from_le_bytes([i0, i1, i2, i3]))?;
            rest = tail;
        }
        if !rest.is_empty() {
            return Err(invalid("ends within an entry"));
        }
        list.finish().map(Some)
    }

    /// Encodes to the binary form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        let mut push = |tag: u16, perm: u8, id: u32| {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&u16::from(perm).to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        };
        push(TAG_USER_OBJ, self.owner, ID_UNDEFINED);
        self.users.iter().for_each(|&(id, perm)| push(TAG_USER, perm, id));
        push(TAG_GROUP_OBJ, self.group, ID_UNDEFINED);
        self.groups.iter().for_each(|&(id, perm)| push(TAG_GROUP, perm, id));
        if let Some(mask) = self.mask {
            push(TAG_MASK, mask, ID_UNDEFINED);
        }
        push(TAG_OTHER, self.other, ID_UNDEFINED);
        out
    }

    /// True if the permission bits of a mode say all that the list says.
    pub fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// The nine permission bits of the mode that go with the list: the group's are the mask.
    pub fn mode(&self) -> u32 {
        let group = self.mask.unwrap_or(self.group);
        u32::from(self.owner) << 6 | u32::from(group) << 3 | u32::from(self.other)
    }

    /// The list after a chmod: owner, mask (or group) and others take the mode's bits.
    #[must_use]
    pub fn with_mode(mut self, mode: u32) -> Self {
        self.owner = bits(mode >> 6);
        self.other = bits(mode);
        match &mut self.mask {
            Some(mask) => *mask = bits(mode >> 3),
            None => self.group = bits(mode >> 3),
        }
        self
    }

    /// The access list of a file made with permission bits `mode` in a directory that has this
    /// default list: each of the three classes gets at most what both allow.
    #[must_use]
    pub fn for_new_file(mut self, mode: u32) -> Self {
        self.owner &= bits(mode >> 6);
        self.other &= bits(mode);
        match &mut self.mask {
            Some(mask) => *mask &= bits(mode >> 3),
            None => self.group &= bits(mode >> 3),
        }
        self
    }

    /// True if the list grants all of `want` to somebody who is not root, by the algorithm of
    /// POSIX.1e 23.1.5: the first class that fits decides; among groups any one may grant.
    pub fn permits(&self, cred: &Credentials, uid: u32, gid: u32, want: u8) -> bool {
        let grants = |perm: u8| perm & want == want;
        let mask = self.mask.unwrap_or(0o7);
        if cred.uid == uid {
            return grants(self.owner);
        }
        if let Some(&(_, perm)) = self.users.iter().find(|(id, _)| *id == cred.uid) {
            return grants(perm & mask);
        }
        let owning = cred.in_group(gid).then_some(self.group);
        let named = self.groups.iter().filter(|(id, _)| cred.in_group(*id)).map(|(_, perm)| *perm);
        let mut fits = false;
        for perm in owning.into_iter().chain(named) {
            fits = true;
            if grants(perm & mask) {
                return true;
            }
        }
        !fits && grants(self.other)
    }
}

/// An [`Acl`] whose entries are still being read.
#[derive(Default)]
struct Parts {
    /// Tag and id of the entry before, for the order.
    last: Option<(u16, u32)>,
    owner: Option<u8>,
    users: Vec<(u32, u8)>,
    group: Option<u8>,
    groups: Vec<(u32, u8)>,
    mask: Option<u8>,
    other: Option<u8>,
}

impl Parts {
    fn add(&mut self, tag: u16, perm: u16, id: u32) -> Result<()> {
        if perm > 0o7 {
            return Err(invalid("permissions beyond rwx"));
        }
        let perm = perm as u8;
        let named = matches!(tag, TAG_USER | TAG_GROUP);
        let order = (tag, if named { id } else { 0 });
        if self.last.is_some_and(|last| last >= order) {
            return Err(invalid("entries twice or out of order"));
        }
        self.last = Some(order);
        if named && id == ID_UNDEFINED {
            return Err(invalid("a named entry without its id"));
        }
        match tag {
            TAG_USER_OBJ => self.owner = Some(perm),
            TAG_USER => self.users.push((id, perm)),
            TAG_GROUP_OBJ => self.group = Some(perm),
            TAG_GROUP => self.groups.push((id, perm)),
            TAG_MASK => self.mask = Some(perm),
            TAG_OTHER => self.other = Some(perm),
            _ => return Err(invalid("an unknown tag")),
        }
        if self.users.len() + self.groups.len() > ACL_NAMED_MAX {
            let detail = format!("an ACL names at most {ACL_NAMED_MAX} users and groups");
            return Err(Error::with(ErrorKind::NoSpace, detail));
        }
        Ok(())
    }

    fn finish(self) -> Result<Acl> {
        let (Some(owner), Some(group), Some(other)) = (self.owner, self.group, self.other) else {
            return Err(invalid("owner, group or others missing"));
        };
        if self.mask.is_none() && !(self.users.is_empty() && self.groups.is_empty()) {
            return Err(invalid("named entries without a mask"));
        }
        Ok(Acl { owner, users: self.users, group, groups: self.groups, mask: self.mask, other })
    }
}

fn bits(mode: u32) -> u8 {
    (mode & 0o7) as u8
}

fn invalid(what: &'static str) -> Error {
    Error::with(ErrorKind::Invalid, format!("ACL: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Acl {
        Acl {
            owner: 7,
            users: vec![(10, 6), (20, 7)],
            group: 5,
            groups: vec![(100, 4)],
            mask: Some(6),
            other: 1,
        }
    }

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { uid, gid, groups: groups.to_vec(), checked: false }
    }

    #[test]
    fn the_binary_form_is_the_kernels() {
        let bytes = Acl::from_mode(0o640).encode();
        let expected = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0,
            0, 255, 255, 255, 255,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn encode_and_decode_agree() {
        assert_eq!(Acl::decode(&sample().encode()).unwrap(), Some(sample()));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]).unwrap(), None);
    }

    #[test]
    fn damaged_lists_are_refused() {
        let good = sample().encode();
        for cut in 1..good.len() {
            let refused = Acl::decode(&good[..cut]);
            assert!(refused.is_err() || refused == Ok(None), "cut at {cut}");
        }
        let mut unsorted = good.clone();
        unsorted[12..28].rotate_left(8);
        assert!(Acl::decode(&unsorted).is_err());
        let without_mask = Acl { mask: None, ..sample() };
        assert!(Acl::decode(&without_mask.encode()).is_err());
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        let changed = sample().with_mode(0o740);
        assert_eq!((changed.mask, changed.group, changed.other), (Some(4), 5, 0));
        assert_eq!(changed.mode(), 0o740);
    }

    #[test]
    fn a_new_file_gets_at_most_what_both_allow() {
        let made = sample().for_new_file(0o664);
        assert_eq!((made.owner, made.mask, made.other), (6, Some(6), 0));
    }

    #[test]
    fn the_mask_bounds_named_entries_and_the_first_fitting_class_decides() {
        let acl = sample();
        assert!(acl.permits(&cred(10, 0, &[]), 1, 2, 6));
        assert!(!acl.permits(&cred(20, 0, &[]), 1, 2, 1), "masked");
        assert!(acl.permits(&cred(5, 100, &[]), 1, 2, 4));
        assert!(!acl.permits(&cred(5, 100, &[]), 1, 2, 1), "no fall through to others");
        assert!(acl.permits(&cred(5, 5, &[]), 1, 2, 1), "others");
        assert!(acl.permits(&cred(1, 0, &[]), 1, 2, 7), "owner, unmasked");
    }
}
