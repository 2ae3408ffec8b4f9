//! Owners, modes, set-id bits, extended attributes, ACLs.

use crate::place;
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, StatxFlags, Uid, XattrFlags, chmod, chown, copy_file_range,
    getxattr, listxattr, removexattr, setxattr, statx,
};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use strake_tests::property::directory::as_user;
use strake_types::Credentials;

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, ..Credentials::default() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, bits: u32) {
    chmod(path, Mode::from_raw_mode(bits)).unwrap();
}

fn set_owner(path: &Path, uid: u32, gid: u32) {
    chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
}

fn xattr(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 70_000];
    let len = getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

#[test]
fn mode_bits_refuse_what_they_do_not_grant() {
    let place = place("mode");
    let path = place.at("file");
    fs::write(&path, "secret").unwrap();
    set_owner(&path, 1000, 1000);
    set_mode(&path, 0o640);
    as_user(&user(2000), || {
        let opened = rustix::fs::open(&path, OFlags::RDONLY, Mode::empty());
        assert_eq!(opened.unwrap_err(), Errno::ACCESS);
        assert_eq!(chmod(&path, Mode::RWXU), Err(Errno::PERM));
    });
    let member = Credentials { groups: vec![1000], ..user(2000) };
    as_user(&member, || {
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        let opened = rustix::fs::open(&path, OFlags::WRONLY, Mode::empty());
        assert_eq!(opened.unwrap_err(), Errno::ACCESS);
    });
}

#[test]
fn the_sticky_bit_protects_entries_of_others() {
    let place = place("sticky");
    set_mode(&place.path, 0o1777);
    as_user(&user(1000), || fs::write(place.at("mine"), "").unwrap());
    as_user(&user(2000), || {
        assert_eq!(rustix::fs::unlink(place.at("mine")), Err(Errno::PERM));
        assert_eq!(rustix::fs::rename(place.at("mine"), place.at("yours")), Err(Errno::PERM));
    });
    as_user(&user(1000), || fs::remove_file(place.at("mine")).unwrap());
}

#[test]
fn a_setgid_directory_hands_down_its_group() {
    let place = place("setgid");
    fs::create_dir(place.at("d")).unwrap();
    set_owner(&place.at("d"), 1000, 3000);
    set_mode(&place.at("d"), 0o2777);
    as_user(&user(2000), || {
        fs::write(place.at("d/file"), "").unwrap();
        fs::create_dir(place.at("d/sub")).unwrap();
    });
    assert_eq!(fs::metadata(place.at("d/file")).unwrap().gid(), 3000);
    let sub = fs::metadata(place.at("d/sub")).unwrap();
    assert_eq!((sub.gid(), sub.mode() & 0o2000), (3000, 0o2000));
}

#[test]
fn writing_and_chown_take_back_set_id_bits() {
    let place = place("setuid");
    let path = place.at("file");
    fs::write(&path, "program").unwrap();
    set_owner(&path, 1000, 1000);
    set_mode(&path, 0o6777);
    as_user(&user(1000), || fs::write(&path, "another").unwrap());
    assert_eq!(mode(&path), 0o777, "after a write by its owner");
    set_mode(&path, 0o6755);
    set_owner(&path, 2000, 2000);
    assert_eq!(mode(&path), 0o755, "after chown");
    set_mode(&path, 0o4755);
    fs::write(&path, "by root").unwrap();
    assert_eq!(mode(&path), 0o4755, "root's writes keep them");
}

/// What counts is who copies, not who has opened the file.
#[test]
fn copying_into_a_file_takes_back_set_id_bits() {
    let place = place("setuid-copy");
    let path = place.at("file");
    fs::write(&path, "program").unwrap();
    set_mode(&path, 0o6775);
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let copy = |from: u64| {
        let (mut from, mut to) = (from, 7);
        copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 4).unwrap()
    };
    assert_eq!((copy(0), mode(&path)), (4, 0o6775), "root's copies keep them");
    assert_eq!(as_user(&user(1000), || copy(500)), 0);
    assert_eq!(mode(&path), 0o6775, "nothing was copied");
    assert_eq!(as_user(&user(1000), || copy(0)), 4);
    assert_eq!(mode(&path), 0o775, "after a copy by an ordinary user");
}

/// The kernel went on to believe the mode of before: who may write the file could run what he had written as its owner.
#[test]
fn the_kernel_knows_at_once_what_a_write_has_taken_back() {
    let place = place("setuid-known");
    let path = place.at("file");
    fs::write(&path, "program").unwrap();
    set_mode(&path, 0o6777);
    // As when it is run: only the mode must be known.
    let known = || {
        let known = statx(CWD, &path, AtFlags::empty(), StatxFlags::MODE).unwrap();
        u32::from(known.stx_mode) & 0o7777
    };
    for further in [false, true] {
        set_mode(&path, 0o6777);
        as_user(&user(1000), || {
            let file = fs::File::options().read(further).write(true).open(&path).unwrap();
            assert_eq!(known(), 0o6777);
            file.write_at(b"another", 0).unwrap();
            assert_eq!(known(), 0o777, "read as well: {further}");
        });
    }
}

/// What the kernel takes for capabilities: the second version, CAP_NET_RAW.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The kernel takes them away where it writes through its page cache, and leaves the rest to us.
#[test]
fn writing_takes_the_capabilities_of_a_program_back() {
    let place = place("capability");
    let path = place.at("file");
    fs::write(&path, "program").unwrap();
    set_mode(&path, 0o777);
    let name = "security.capability";
    let give = || {
        setxattr(&path, name, &capability(), XattrFlags::CREATE).unwrap();
        assert!(xattr(&path, name).is_ok());
    };
    give();
    for uid in [0, 1000] {
        let open = || fs::File::options().write(true).open(&path).unwrap();
        let file = as_user(&user(uid), open);
        for _ in 0..2 {
            as_user(&user(uid), || file.write_at(b"x", 0).unwrap());
            assert_eq!(xattr(&path, name), Err(Errno::NODATA), "written by {uid}");
            give();
        }
    }
    fs::write(&path, "another").unwrap();
    assert_eq!(xattr(&path, name), Err(Errno::NODATA), "cut");
    // What was written before does not take away what is given after it.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_at(b"x", 0).unwrap();
    give();
    drop(file);
    assert!(xattr(&path, name).is_ok());
}

#[test]
fn extended_attributes_of_every_name_space_are_kept() {
    let place = place("xattr");
    let path = place.at("file");
    fs::write(&path, "x").unwrap();
    let big = vec![5; 60_000];
    for (name, value) in [
        ("user.small", b"value".as_slice()),
        ("user.empty", b""),
        ("user.big", &big),
        ("trusted.overlay", b"t"),
        ("security.note", b"s"),
    ] {
        setxattr(&path, name, value, XattrFlags::CREATE).unwrap();
        assert_eq!(xattr(&path, name).unwrap(), value, "{name}");
    }
    assert_eq!(setxattr(&path, "user.small", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(setxattr(&path, "user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut list = vec![0; 4096];
    let len = listxattr(&path, &mut list[..]).unwrap();
    let list = String::from_utf8_lossy(&list[..len]).into_owned();
    assert!(["user.small", "user.big", "trusted.overlay"].iter().all(|n| list.contains(n)));
    removexattr(&path, "user.big").unwrap();
    assert_eq!(xattr(&path, "user.big"), Err(Errno::NODATA));
    assert_eq!(xattr(&path, "security.selinux"), Err(Errno::OPNOTSUPP), "as NFS without labels");
    setxattr(&path, "security.selinux", b"label", XattrFlags::CREATE).unwrap();
    assert_eq!(xattr(&path, "security.selinux").unwrap(), b"label");
    let mut short = [0; 2];
    assert_eq!(getxattr(&path, "user.small", &mut short[..]), Err(Errno::RANGE));
    as_user(&user(1000), || {
        assert_eq!(setxattr(&path, "trusted.x", b"", XattrFlags::empty()), Err(Errno::PERM));
    });
}

/// The binary form of an ACL: a version, then tag, permissions and id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

#[test]
fn an_acl_grants_and_refuses_by_user_and_shows_in_the_mode() {
    let place = place("acl");
    let path = place.at("file");
    fs::write(&path, "x").unwrap();
    set_mode(&path, 0o600);
    let list =
        acl(&[(1, 6, NOBODY), (2, 4, 1000), (4, 0, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
    setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    assert_eq!(mode(&path), 0o640, "the mask stands in the group's bits");
    as_user(&user(1000), || assert_eq!(fs::read(&path).unwrap(), b"x"));
    as_user(&user(2000), || assert!(fs::read(&path).is_err()));
    set_mode(&path, 0o600);
    as_user(&user(1000), || assert!(fs::read(&path).is_err(), "chmod lowered the mask"));
    removexattr(&path, "system.posix_acl_access").unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_default_acl_is_inherited_in_place_of_the_umask() {
    let place = place("default-acl");
    let list =
        acl(&[(1, 7, NOBODY), (2, 6, 1000), (4, 5, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)]);
    setxattr(&place.path, "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::open(place.at("file"), flags, Mode::from_raw_mode(0o666)).unwrap();
    assert_eq!(mode(&place.at("file")), 0o660);
    as_user(&user(1000), || fs::write(place.at("file"), "granted").unwrap());
    fs::create_dir(place.at("sub")).unwrap();
    let inherited = xattr(&place.at("sub"), "system.posix_acl_default").unwrap();
    assert_eq!(inherited, list);
}

#[test]
fn layout_attributes_are_set_on_directories_and_inherited() {
    let place = place("layout");
    fs::create_dir(place.at("d")).unwrap();
    let set = |name: &str, value: &str| {
        setxattr(place.at("d"), name, value.as_bytes(), XattrFlags::empty())
    };
    set("user.strake.layout.chunk_size", "65536").unwrap();
    set("user.strake.layout.width", "2").unwrap();
    fs::create_dir(place.at("d/sub")).unwrap();
    fs::write(place.at("d/sub/file"), vec![1; 300_000]).unwrap();
    let shown =
        |name: &str| String::from_utf8(xattr(&place.at("d/sub/file"), name).unwrap()).unwrap();
    assert_eq!(shown("user.strake.layout.chunk_size"), "65536");
    assert_eq!(shown("user.strake.layout.width"), "2");
    assert_eq!(set("user.strake.layout.chunk_size", "12345"), Err(Errno::INVAL));
}
