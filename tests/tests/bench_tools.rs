//! `strake bench run`: other tools, where they are installed, and stand-ins for them; `strake bench
//! tune` on a mount.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use strake_bench::report::saved;
use strake_bench::result::Report;
use strake_tests::cluster::{Up, strake};
use strake_tests::programs;
use tempfile::TempDir;

/// `strake bench run` with only the tools of a directory.
fn driven(tools: &Path, on: &TempDir, arguments: &[&str]) -> Output {
    let on = on.path().display().to_string();
    let all = ["bench", "run"].into_iter().chain(arguments[..1].iter().copied());
    let all = all.chain(["--on", &on]).chain(arguments[1..].iter().copied());
    let mut command: Command = strake(all);
    command.env("PATH", tools).output().unwrap()
}

/// A stand-in for a tool.
fn stand_in(directory: &TempDir, name: &str, script: &str) {
    programs::make(&directory.path().join(name), &format!("#!/bin/sh\n{script}"));
}

fn is_empty(directory: &TempDir) -> bool {
    std::fs::read_dir(directory.path()).unwrap().next().is_none()
}

/// A report of real tools, with little to do; `None` where the tool is not installed.
fn real(tool: &str, further: &[&str]) -> Option<Report> {
    let directory = tempfile::tempdir().unwrap();
    let on = directory.path().display().to_string();
    let arguments = ["bench", "run", tool, "--on", &on, "--size", "2M", "--seconds", "1", "--json"];
    let output = strake(arguments.into_iter().chain(further.iter().copied())).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(is_empty(&directory), "{tool} leaves nothing");
    if error.contains("is not installed") {
        println!("{tool} is not installed: it is not driven");
        return None;
    }
    assert!(output.status.success(), "{tool}: {error}");
    Some(saved::from_json(&output.stdout).unwrap())
}

fn tests(report: &Report) -> Vec<&str> {
    report.figures.iter().map(|figure| figure.test.as_str()).collect()
}

#[test]
fn fio_is_driven_where_it_is_installed() {
    let Some(report) = real("fio", &["--repetitions", "2"]) else { return };
    for name in
        ["fio/sequential write", "fio/sequential read", "fio/random read", "fio/random write"]
    {
        assert!(tests(&report).contains(&name), "{name} is not in {:?}", tests(&report));
    }
    assert!(report.figures.iter().all(|f| f.samples.len() == 2 && f.samples[0] > 0.0));
    assert!(report.figures.iter().all(|f| f.parameters.len() == 3 && f.parameters["block"] > 0.0));
    let fio = &report.programs[0];
    assert!(!fio.version.is_empty() && fio.command.starts_with("fio --"), "{fio:?}");
}

#[test]
fn dbench_is_driven_where_it_is_installed() {
    let Some(report) = real("dbench", &["--threads", "2"]) else { return };
    assert_eq!(tests(&report), ["dbench/throughput", "dbench/longest wait"]);
    assert_eq!(report.figures[0].parameters["clients"], 2.0);
}

#[test]
fn bonnie_is_driven_where_it_is_installed() {
    // What is over too soon has no figure, but a note.
    let Some(report) = real("bonnie++", &["--files", "0"]) else { return };
    assert!(!report.figures.is_empty() || !report.notes.is_empty());
}

#[test]
fn a_tool_that_is_missing_is_named_with_where_to_get_it() {
    let (tools, on) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (tool, word) in [("iozone", "iozone3"), ("mdtest", "IOR")] {
        let output = driven(tools.path(), &on, &[tool]);
        let error = String::from_utf8_lossy(&output.stderr);
        // One who has it in /usr/local/sbin drives it.
        if !output.status.success() {
            assert!(error.contains(&format!("{tool} is not installed")), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }
    let output = driven(tools.path(), &on, &["ls"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("dbench"), "the tools are listed");
}

#[test]
fn what_a_tool_prints_becomes_figures_and_what_it_makes_goes() {
    let (tools, on) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    stand_in(
        &tools,
        "mdtest",
        "/bin/mkdir left\n/bin/cat <<END\nSUMMARY rate: (of 1 iterations)\n   File creation  :  10.0  10.0  10.0  0.0\nEND\n",
    );
    let output =
        driven(tools.path(), &on, &["mdtest", "--files", "5", "--json", "--repetitions", "3"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report = saved::from_json(&output.stdout).unwrap();
    assert_eq!(tests(&report), ["mdtest/file creation"]);
    assert_eq!(report.figures[0].samples, [10.0; 3]);
    assert!(is_empty(&on));
}

#[test]
fn a_tool_that_fails_or_hangs_or_says_nothing_is_an_error_with_its_last_lines() {
    let (tools, on) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let refused = |arguments: &[&str], words: &[&str]| {
        let output = driven(tools.path(), &on, arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        assert!(is_empty(&on), "nothing is left behind");
    };
    stand_in(&tools, "dbench", "echo begun\n: > data\necho 'no space left' >&2\nexit 7\n");
    refused(&["dbench"], &["dbench failed", "7", "no space left", "dbench -t 10"]);
    stand_in(&tools, "dbench", "echo hello\n");
    refused(&["dbench"], &["no figures", "hello"]);
    stand_in(&tools, "dbench", "/bin/sleep 1000 &\n/bin/sleep 1000\n");
    refused(&["dbench", "--limit", "1"], &["did not end within 1 s", "--limit"]);
    refused(&["dbench", "--threads", "999999999"], &["has room for"]);
}

/// The tool of a run that was killed went on for as long as it liked, in the directory that the next
/// run measured.
#[test]
fn a_tool_ends_with_a_run_that_is_killed() {
    let (tools, on) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let told = tools.path().join("told");
    let script = format!(
        "/bin/sleep 1000 &\necho $$ $! > {0}.new\n/bin/mv {0}.new {0}\n/bin/sleep 1000\n",
        told.display()
    );
    stand_in(&tools, "dbench", &script);
    let here = on.path().display().to_string();
    let mut command = strake(["bench", "run", "dbench", "--on", &here]);
    let mut run = command.env("PATH", tools.path()).stderr(Stdio::null()).spawn().unwrap();
    let (began, limit) = (Instant::now(), Duration::from_secs(60));
    while !told.exists() && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = std::fs::read_to_string(&told).unwrap();
    let pids = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<u32>>();
    let alive = |pid: &&u32| strake_base::process::began_ticks(**pid).is_some();
    assert_eq!(pids.iter().filter(alive).count(), 2, "the tool and its child");
    run.kill().unwrap();
    run.wait().unwrap();
    let began = Instant::now();
    while pids.iter().any(|pid| alive(&pid)) {
        assert!(began.elapsed() < limit, "they outlive their run");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn layouts_of_a_mount_are_measured_and_a_word_is_said_on_each() {
    let up = Up::start(&["--targets", "2"]);
    let (mount, page) = (up.mount(), tempfile::tempdir().unwrap());
    let (directory, page) = (mount.display().to_string(), page.path().join("page.html"));
    let page = page.display().to_string();
    std::fs::create_dir_all(Path::new(&page).parent().unwrap()).unwrap();
    let tune = |further: &[&str]| {
        let all =
            ["bench", "tune", &directory, "--size", "1M", "--record", "64K", "--threads", "2"];
        strake(all.into_iter().chain(further.iter().copied())).output().unwrap()
    };
    let output = tune(&[
        "--chunk-sizes",
        "256K,1M",
        "--widths",
        "1,2,7,0",
        "--repetitions",
        "4",
        "--html",
        &page,
    ]);
    let (shown, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    for word in [
        "as it is",
        "256 KiB over 1",
        "1 MiB over 1",
        "iozone/read",
        "iozone/random write",
        "suggestion: ",
    ] {
        assert!(shown.contains(word), "{word:?} is not in: {shown}");
    }
    assert!(
        shown.contains("256 KiB over all is like one of the others here, and left out"),
        "{shown}"
    );
    assert!(std::fs::read_to_string(&page).unwrap().contains("256 KiB over 2"));
    let few = tune(&["--chunk-sizes", "256K", "--widths", "1", "--repetitions", "1"]);
    let shown = String::from_utf8_lossy(&few.stdout);
    assert!(shown.contains("leave the layout as it is"), "{shown}");
    assert!(shown.contains("1 repetitions allow no verdict; it takes 4"), "{shown}");
    let wrong = tune(&["--chunk-sizes", "100K"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(std::fs::read_dir(&mount).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn a_directory_that_is_not_on_strake_is_not_tuned() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        strake(["bench", "tune", &directory.path().display().to_string()]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("does not lie in a Strake mount"), "{error}");
    assert!(is_empty(&directory));
}
