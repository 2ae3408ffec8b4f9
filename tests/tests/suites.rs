//! Suites that nobody here wrote, on mounts of `strake up`, and of a volume of several shares.

use std::path::Path;
use std::process::Command;
use strake_tests::cluster::Up;
use strake_tests::helpers::with_mount_helpers;
use strake_tests::owners::Cluster;
use strake_tests::suites::{finish, tool};

/// Fewest tests of pjdfstest that must have passed: all but those of EROFS, which have a run of their
/// own, and one that asks the C library how many links a file may have; that knows no answer for
/// FUSE. Ours for it is `a_file_has_65000_links_and_not_one_more`.
const PJDFSTEST_PASSED_MIN: u64 = 384;
/// Tests of EROFS.
const PJDFSTEST_EROFS_PASSED_MIN: u64 = 13;
/// Lines shown of what a suite says from its first failure on.
const FAILED_LINES_MAX: usize = 100;
/// Operations of each run of fsx, where `STRAKE_FSX_OPERATIONS` does not say.
const FSX_OPERATIONS_DEFAULT: &str = "8000";

/// Runs those tests of pjdfstest on a mount whose names have `filter` in them.
fn pjdfstest(mount: &Path, filter: &str, passed_min: u64) {
    let program = tool("pjdfstest", "0.2.2");
    let settings = tempfile::tempdir().unwrap();
    let config = settings.path().join("pjdfstest.toml");
    // A remount is refused while a file is open for writing, and some tests of `open` leave theirs.
    let remount = filter == "erofs";
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nutimensat = {{}}\nutime_now = {{}}\nrename_ctime = {{}}\n\
         stat_st_birthtime = {{}}\n[settings]\nnaptime = 0.05\nallow_remount = {remount}\n\
         expected_failures = []\n[dummy_auth]\nentries = [ [\"nobody\", \"nogroup\"], \
         [\"daemon\", \"daemon\"] ]\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = with_mount_helpers(&settings.path().join("sbin"), mount, &program);
    // Tests of EXDEV look at a second file system: that of `settings`.
    command.arg("-c").arg(&config).arg("-p").arg(mount).arg("-s").arg(settings.path());
    command.arg(filter);
    let (output, text) = finish(&mut command);
    // Under the name of each that failed stands what it had expected.
    let failed: Vec<_> = text
        .lines()
        .skip_while(|line| !line.contains("FAILED"))
        .filter(|line| !line.trim_end().ends_with("ok"))
        .take(FAILED_LINES_MAX)
        .collect();
    let summary = text.lines().rfind(|line| line.starts_with("Summary:")).unwrap_or(&text);
    assert!(output.status.success() && failed.is_empty(), "{summary}\n{}", failed.join("\n"));
    // "Summary: 0 failed, 14 skipped, 384 passed, ..."
    let passed = summary.split(", ").find_map(|part| part.strip_suffix(" passed")).unwrap_or("0");
    assert!(passed.parse::<u64>().unwrap() >= passed_min, "{summary}");
}

#[test]
fn pjdfstest_passes() {
    pjdfstest(&Up::start(&[]).mount(), "", PJDFSTEST_PASSED_MIN);
}

/// Nearly every directory that it makes has its names in another share than its parent has.
#[test]
fn pjdfstest_passes_on_a_volume_of_several_shares() {
    let cluster = Cluster::of_shares(5);
    let mount = cluster.mount("mnt");
    pjdfstest(mount.path(), "", PJDFSTEST_PASSED_MIN);
    drop(mount);
    cluster.fsck();
}

#[test]
fn pjdfstest_of_a_read_only_mount_passes() {
    pjdfstest(&Up::start(&[]).mount(), "erofs", PJDFSTEST_EROFS_PASSED_MIN);
}

/// Runs fsx with small, large and unmapped files, with every operation that it knows.
fn fsx(up: &Up) {
    let program = tool("fsx", "0.3.2");
    let operations = std::env::var("STRAKE_FSX_OPERATIONS");
    let operations = operations.as_deref().unwrap_or(FSX_OPERATIONS_DEFAULT);
    let logs = tempfile::tempdir().unwrap();
    for (name, length, operation, mapped) in [
        ("small", 262_144, 65_536, 10),
        ("large", 8_388_608, 1_048_576, 5),
        ("plain", 1_048_576, 200_000, 0),
    ] {
        let config = logs.path().join(format!("{name}.toml"));
        let text = format!(
            "flen = {length}\n[opsize]\nmax = {operation}\nmin = 1\n[weights]\nclose_open = 1\n\
             invalidate = 1\nmapread = {mapped}\nmapwrite = {mapped}\nread = 20\nwrite = 20\n\
             truncate = 5\nfsync = 1\nfdatasync = 1\nsendfile = 1\nposix_fadvise = 1\n\
             posix_fallocate = 1\npunch_hole = 2\ncopy_file_range = 2\n"
        );
        std::fs::write(&config, text).unwrap();
        // A new seed each time; a failure prints it.
        let mut command = Command::new(&program);
        command.args(["-N", operations, "-q", "-P"]).arg(logs.path()).arg("-f").arg(&config);
        command.arg(up.mount().join(name));
        let (output, text) = finish(&mut command);
        let tail: Vec<_> = text.lines().rev().take(60).collect();
        assert!(
            output.status.success(),
            "{name}:\n{}",
            tail.into_iter().rev().collect::<Vec<_>>().join("\n")
        );
    }
}

#[test]
fn fsx_passes() {
    fsx(&Up::start(&[]));
}

#[test]
fn fsx_with_writeback() {
    fsx(&Up::start(&["--writeback"]));
}
