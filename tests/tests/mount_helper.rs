//! `mount -t strake`, lines of fstab, remounting and unmounting, by the system's own programs.

use std::path::Path;
use strake_tests::cluster::{Servers, free_port};
use strake_tests::helpers::with_mount_helpers;
use strake_tests::suites::finish;

/// What every script has: `$source`, `$dir`, `$table` (an fstab), and that nothing stays mounted.
const BEGIN: &str = "set -eu
source=$1 dir=$2 table=$3 log=$4
trap 'umount -l \"$dir\" 2>/dev/null || true' EXIT
refused() { if \"$@\" 2>/dev/null; then echo \"not refused: $*\" >&2; exit 1; fi; }
shown() { grep -q \" $dir fuse.strake $1,\" /proc/mounts || { cat /proc/mounts >&2; exit 1; }; }
";

/// Runs a script where `mount` finds our helpers, on a volume of a server. The first of the
/// addresses in its source is dead.
fn run(script: &str) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mount namespaces need root");
        return;
    }
    let servers = Servers::start();
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    let source = format!("127.0.0.1:{},{}:/main", free_port(), servers.address());
    let mut command = with_mount_helpers(&at("sbin"), Path::new(""), Path::new("sh"));
    command.args(["-c", &format!("{BEGIN}{script}"), "sh", &source]);
    command.args([at("dir"), at("fstab"), at("log")]);
    let (output, text) = finish(&mut command);
    let log = std::fs::read_to_string(at("log")).unwrap_or_default();
    assert!(output.status.success(), "{text}\n{log}");
}

#[test]
fn mount_finds_the_living_one_of_several_addresses_and_umount_ends_it() {
    run("mount -t strake \"$source\" \"$dir\" -o \"nosuid,silent,log=$log\"
        shown rw,nosuid
        echo kept > \"$dir/file\"
        umount \"$dir\"
        refused test -e \"$dir/file\"
        mount -r -t strake \"$source\" \"$dir\" -o \"log=$log\"
        shown ro
        test \"$(cat \"$dir/file\")\" = kept
        umount \"$dir\"");
}

/// A line of fstab failed at boot when the name of one manager, which was out of service, was gone.
#[test]
fn a_mount_goes_on_where_one_of_several_names_stands_for_nothing() {
    run("mount -t strake \"nosuch.invalid,$source\" \"$dir\" -o \"log=$log\"
        echo kept > \"$dir/file\"
        umount \"$dir\"");
}

/// A lock that its caller held was held as long as the mount was there, and the disk that he was on could not be unmounted.
#[test]
fn a_mount_in_the_background_keeps_nothing_of_its_caller() {
    run("mkdir \"$dir.disk\"
        mount -t tmpfs none \"$dir.disk\"
        exec 9> \"$table\"
        flock 9
        (cd \"$dir.disk\"; exec /sbin/mount.strake \"$source\" \"$dir\" -o \"log=$log\")
        exec 9>&-
        flock -n \"$table\" true
        umount \"$dir.disk\"
        echo kept > \"$dir/file\"
        umount \"$dir\"");
}

/// It was refused, and `modprobe fuse` was to help.
#[test]
fn a_mount_without_a_shell_works_and_says_what_is_missing() {
    run("mount --bind /dev/null \"$(realpath /bin/sh)\"
        mount -t strake \"$source\" \"$dir\" -o \"log=$log\"
        echo kept > \"$dir/file\"
        test \"$(cat \"$dir/file\")\" = kept
        grep -q 'nothing watches over it' \"$log\"
        umount \"$dir\"");
}

/// It said of which release the program is, and nothing about the line.
#[test]
fn a_fake_mount_is_silent_and_refuses_a_wrong_line() {
    run("mount -f -t strake \"$source\" \"$dir\" -o ro > \"$log\" 2>&1
        test ! -s \"$log\"
        refused grep -q \" $dir fuse.strake \" /proc/mounts
        refused mount -f -t strake \"$source\" \"$dir\" -o memory=much");
}

#[test]
fn a_mount_becomes_read_only_and_writable_again() {
    // `mount` hands on what the kernel shows of the mount: user_id=0 and the like.
    run("mount -t strake \"$source\" \"$dir\" -o \"nosuid,log=$log\"
        echo one > \"$dir/file\"
        mount -o remount,ro \"$dir\"
        shown ro,nosuid
        refused touch \"$dir/new\"
        refused rm \"$dir/file\"
        test \"$(cat \"$dir/file\")\" = one
        mount -o remount,rw \"$dir\"
        shown rw,nosuid
        echo two > \"$dir/file\"
        test \"$(cat \"$dir/file\")\" = two
        umount \"$dir\"");
}

#[test]
fn a_mount_that_began_read_only_is_writable_after_a_remount() {
    run("mount -t strake \"$source\" \"$dir\" -o \"ro,log=$log\"
        refused touch \"$dir/new\"
        mount -o remount,rw \"$dir\"
        echo new > \"$dir/new\"
        mkdir \"$dir/d\"
        umount \"$dir\"");
}

#[test]
fn what_the_kernel_has_flags_for_is_handed_on_to_it() {
    run("mount -t strake \"$source\" \"$dir\" -o \"sync,nosymfollow,iversion,log=$log\"
        shown rw,sync
        grep \" $dir fuse.strake \" /proc/mounts | grep -q nosymfollow
        echo kept > \"$dir/file\"
        ln -s file \"$dir/link\"
        test \"$(readlink \"$dir/link\")\" = file
        refused cat \"$dir/link\"
        mount -o remount,ro \"$dir\"
        shown ro,sync
        refused cat \"$dir/link\"
        umount \"$dir\"
        refused mount -t strake \"$source\" \"$dir\" -o \"dirsync,log=$log\"
        refused grep -q \" $dir \" /proc/mounts");
}

#[test]
fn a_line_of_fstab_mounts_by_directory_and_with_all_others() {
    run("echo \"$source $dir strake _netdev,nofail,noatime,x-systemd.automount,log=$log 0 0\" > \"$table\"
        mount -T \"$table\" \"$dir\"
        echo kept > \"$dir/file\"
        mount -T \"$table\" -o remount,ro \"$dir\"
        refused touch \"$dir/new\"
        umount \"$dir\"
        mount -T \"$table\" -a
        mount -T \"$table\" -a
        test \"$(grep -c \" $dir fuse.strake \" /proc/mounts)\" = 1
        test \"$(cat \"$dir/file\")\" = kept
        umount \"$dir\"");
}
