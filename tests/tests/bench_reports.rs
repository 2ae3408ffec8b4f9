//! `strake bench show`, `save`, `list` and `compare`: what becomes of a report, from reports that
//! this test makes up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use strake_bench::report::saved;
use strake_bench::result::{Chart, Figure, Machine, Origin, Report, Rule, Side, Unit};
use strake_tests::cluster::strake;
use strake_tests::programs;
use tempfile::TempDir;

/// How long a run may take to begin. Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory with a store, and reports in files.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// Writes a report to a file; its path.
    fn report(&self, name: &str, report: &Report) -> String {
        std::fs::write(self.at(name), saved::to_json(report).unwrap()).unwrap();
        self.text(name)
    }

    /// Runs `strake bench` with a home of its own.
    fn bench(&self, arguments: &[&str]) -> Output {
        let mut command = strake(["bench"].into_iter().chain(arguments.iter().copied()));
        command.env_remove("XDG_DATA_HOME").env("HOME", self.directory.path());
        command.output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.bench(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "strake bench {}: {error}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a refused command says.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.bench(arguments);
        assert!(!output.status.success(), "strake bench {}", arguments.join(" "));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(error.matches("strake: ").count() + error.matches("error: ").count(), 1);
        assert!(!error.contains("panicked"), "{error}");
        error
    }
}

/// A report of two sides whose first is `speed` times as fast as usual.
fn report(speed: f64) -> Report {
    let side = |name: &str, file_system: &str| Side {
        name: name.into(),
        directory: format!("/mnt/{name}"),
        file_system: file_system.into(),
    };
    let mut figures = Vec::new();
    for size in [1 << 21, 1 << 22] {
        for (name, megabytes) in [("strake", 10.0 * speed), ("ext4", 200.0)] {
            let samples = [0.99, 1.0, 1.01, 1.0, 0.995];
            figures.push(Figure {
                side: name.into(),
                origin: Origin::Measured,
                test: "iozone/write".into(),
                parameters: BTreeMap::from([("size".to_owned(), f64::from(size))]),
                unit: Unit::BytesPerSecond,
                samples: samples.iter().map(|s| s * megabytes * 1e6).collect(),
                rule: Rule::Median,
            });
        }
    }
    Report {
        title: "A study".into(),
        command: "strake bench study 1".into(),
        started: 1_795_271_400,
        machine: Machine { cores: 2, kernel: "Linux 6.1".into(), ..Machine::default() },
        sides: vec![side("strake", "fuse.strake"), side("ext4", "ext4")],
        programs: Vec::new(),
        figures,
        charts: vec![Chart {
            title: "Write".into(),
            test: "iozone/write".into(),
            across: "size".into(),
            doubling: true,
        }],
        notes: vec!["A note.".into()],
    }
}

fn read(path: &Path) -> Report {
    saved::from_json(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_report_is_shown_as_a_table() {
    let place = Place::new();
    let file = place.report("a.json", &report(1.0));
    let expected = "\
A study
2026-11-21 14:30 UTC; strake  on , 2 cores, 0 B, Linux 6.1
  strake  /mnt/strake (fuse.strake)
  ext4    /mnt/ext4 (ext4)

TEST           SIZE  UNIT  strake  spread   ext4  spread  ratio
iozone/write  2 MiB  MB/s   10.00   2.0 %  200.0   2.0 %   20.0
iozone/write  4 MiB  MB/s   10.00   2.0 %  200.0   2.0 %   20.0

spread: (largest - smallest) / mean of the samples that count
ratio: to strake; ~ where the noise allows no verdict
note: A note.
";
    assert_eq!(place.succeed(&["show", &file]), expected);
    let json = place.succeed(&["show", &file, "--json"]);
    assert_eq!(saved::from_json(json.as_bytes()).unwrap(), report(1.0));
    let csv = place.succeed(&["show", &file, "--csv"]);
    assert_eq!(csv.lines().count(), 5);
    assert!(csv.contains("iozone/write,ext4,measured,4194304,B/s,200000000,median,5,"), "{csv}");
}

#[test]
fn what_a_terminal_would_obey_is_not_printed() {
    let place = Place::new();
    let mut evil = report(1.0);
    evil.title = "a \u{1b}[2J b".into();
    evil.sides[0].directory = "/mnt/\u{1b}]0;x\u{7}".into();
    let file = place.report("a.json", &evil);
    let shown = place.succeed(&["show", &file]);
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
}

#[test]
fn a_baseline_is_saved_listed_and_compared() {
    let place = Place::new();
    let (before, after) =
        (place.report("1.json", &report(1.0)), place.report("2.json", &report(0.8)));
    let usual = place.at(".local/share/strake/bench/before.json");
    let said = place.succeed(&["save", "before", &before]);
    assert!(said.contains(&usual.display().to_string()), "{said}");
    assert_eq!(read(&usual), report(1.0));
    let list = place.succeed(&["list"]);
    assert!(
        list.contains("before  2026-11-21 14:30 UTC        4  strake, ext4  A study"),
        "{list}"
    );
    let found = place.succeed(&["compare", "before", &after]);
    let worse: Vec<_> = found.lines().filter(|line| line.ends_with("worse")).collect();
    assert_eq!(worse.len(), 3, "two rows and the sum: {found}");
    assert!(worse[0].starts_with("iozone/write  strake  size 2 MiB  MB/s"), "{found}");
    assert!(worse[0].contains(" 0.800 "), "{found}");
    assert!(found.contains("4 rows: 0 better, 2 worse"), "{found}");
    let page = place.text("compared.html");
    place.succeed(&["compare", "before", &after, "--html", &page]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("× 0.800"), "{page}");
    let json = place.succeed(&["compare", "before", &after, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"][0]["verdict"], "worse");
    assert_eq!(json["rows"][1]["verdict"], "no_difference");
}

#[test]
fn a_store_of_ones_own_is_used() {
    let place = Place::new();
    let (store, file) = (place.text("store"), place.report("1.json", &report(1.0)));
    let none = place.succeed(&["list", "--store", &store]);
    assert!(none.contains("there are no baselines in"), "{none}");
    place.succeed(&["save", "a", &file, "--store", &store]);
    assert!(place.at("store/a.json").exists());
    assert!(place.succeed(&["show", "a", "--store", &store]).starts_with("A study"));
    assert!(!place.at(".local").exists());
}

#[test]
fn rows_that_only_one_has_and_other_machines_are_said() {
    let place = Place::new();
    let mut other = report(1.0);
    other.figures[0].test = "iozone/read".into();
    other.machine.cores = 64;
    let (a, b) = (place.report("a.json", &report(1.0)), place.report("b.json", &other));
    let found = place.succeed(&["compare", &a, &b]);
    assert!(found.contains("different cores: 2 | 64"), "{found}");
    assert!(found.contains("a.json: iozone/write of strake size 2 MiB"), "{found}");
    assert!(found.contains("b.json: iozone/read of strake size 2 MiB"), "{found}");
}

#[test]
fn a_page_and_a_workbook_are_written() {
    let place = Place::new();
    let file = place.report("a.json", &report(1.0));
    let (page, book) = (place.text("a.html"), place.text("a.xlsx"));
    place.succeed(&["show", &file, "--html", &page, "--xlsx", &book]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("<h1>A study</h1>"), "{page}");
    assert!(std::fs::read(book).unwrap().starts_with(b"PK"));
}

#[test]
fn a_reader_that_has_seen_enough_does_not_keep_files_from_being_written() {
    let place = Place::new();
    let (file, page) = (place.report("a.json", &report(1.0)), place.text("a.html"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = strake(["bench", "show", &file, "--html", &page]);
    assert!(command.stdout(writer).status().unwrap().success());
    assert!(std::fs::read_to_string(page).unwrap().contains("</html>"));
}

#[test]
fn the_last_run_is_remembered_for_save() {
    let place = Place::new();
    let here = format!("here={}", place.text(""));
    place.succeed(&[
        "iozone",
        "-s",
        "64K",
        "-i",
        "0",
        "--on",
        &here,
        "--html",
        &place.text("a.html"),
    ]);
    let said = place.succeed(&["save", "first"]);
    assert!(said.contains("first.json"), "{said}");
    let saved = read(&place.at(".local/share/strake/bench/first.json"));
    assert!(saved.command.contains("bench iozone -s 64K"), "{}", saved.command);
    place.succeed(&["iozone", "-s", "64K", "-i", "0", "--on", &here, "--save", "second"]);
    let found = place.succeed(&["compare", "first", "second"]);
    assert!(found.contains("too few samples"), "{found}");
    assert!(std::fs::read_to_string(place.at("a.html")).unwrap().contains("iozone/write"));
}

/// A stand-in for dbench that measures `runs` times, and then never ends; `dbench.waits` beside it says
/// that it does.
fn dbench_that_hangs_after(runs: usize, place: &Place) {
    let path = place.at("dbench");
    let script = format!(
        "#!/bin/sh\n\
         echo x >> \"$0.runs\"\n\
         if [ $(wc -l < \"$0.runs\") -gt {runs} ]; then : > \"$0.waits\"; exec sleep 1000; fi\n\
         echo 'Throughput 1.00 MB/sec  1 clients  1 procs  max_latency=1.000 ms'\n"
    );
    programs::make(&path, &script);
}

/// What a run of that stand-in says that is interrupted when it waits.
fn interrupted_at_dbench(place: &Place, arguments: &[&str]) -> String {
    let on = place.at("on");
    std::fs::create_dir_all(&on).unwrap();
    let on = on.display().to_string();
    let all = ["bench", "run", "dbench", "--on", &on, "--repetitions", "9"];
    let mut command = strake(all.into_iter().chain(arguments.iter().copied()));
    command.env_remove("XDG_DATA_HOME").env("HOME", place.directory.path());
    command.env("PATH", format!("{}:/usr/bin:/bin", place.text("")));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !place.at("dbench.waits").exists() && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{error}");
    error
}

/// A run that was interrupted before it had a figure replaced the remembered one, and took the name
/// that the whole run was to have.
#[test]
fn a_run_that_ends_early_takes_no_name_and_one_without_figures_is_not_remembered() {
    let place = Place::new();
    let here = format!("here={}", place.text(""));
    place.succeed(&["iozone", "-s", "64K", "-i", "0", "--on", &here]);
    dbench_that_hangs_after(0, &place);
    let said = interrupted_at_dbench(&place, &["--save", "half"]);
    assert!(said.contains("nothing is kept as half"), "{said}");
    place.succeed(&["save", "whole"]);
    let store = place.at(".local/share/strake/bench");
    assert!(read(&store.join("whole.json")).command.contains("bench iozone"));
    for left in ["dbench.waits", "dbench.runs"] {
        std::fs::remove_file(place.at(left)).unwrap();
    }
    dbench_that_hangs_after(1, &place);
    let said = interrupted_at_dbench(&place, &["--save", "half"]);
    assert!(said.contains("ended early and is not kept as half"), "{said}");
    assert!(!store.join("half.json").exists());
    place.succeed(&["save", "half"]);
    let half = read(&store.join("half.json"));
    assert!(half.notes.iter().any(|note| note.contains("interrupted")), "{:?}", half.notes);
    assert_eq!(half.figures[0].samples.len(), 1);
}

#[test]
fn bad_input_gives_one_clear_message() {
    let place = Place::new();
    let file = place.report("a.json", &report(1.0));
    let newer =
        saved::to_json(&report(1.0)).unwrap().replace("\"strake_bench\": 1", "\"strake_bench\": 9");
    std::fs::write(place.at("newer.json"), newer).unwrap();
    std::fs::write(place.at("half.json"), &std::fs::read(&file).unwrap()[..300]).unwrap();
    std::fs::write(place.at("text"), "hello").unwrap();
    place.succeed(&["save", "taken", &file]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["show", "nothing"], &["no file \"nothing\"", "strake bench list"]),
        (&["show", &place.text("newer.json")], &["newer.json", "version 9", "newer strake"]),
        (&["show", &place.text("half.json")], &["half.json", "damaged"]),
        (&["show", &place.text("text")], &["text", "no report"]),
        (&["show", &place.text("")], &["directory"]),
        (&["show", "/nowhere/x.json"], &["/nowhere/x.json", "No such file"]),
        (&["save", "x"], &["no run is remembered", "next:"]),
        (&["save", "../x", &file], &["no name for a baseline"]),
        (&["save", "taken", &file], &["already", "--replace"]),
        (&["show", &file, "--save", "taken"], &["already", "--replace"]),
        (&["show", &file, "--html", "/nowhere/x.html"], &["/nowhere/x.html", "No such file"]),
        (&["show", &file, "--xlsx", &place.text("")], &["Is a directory"]),
        (&["iozone", "--html", "/nowhere/x.html"], &["/nowhere/x.html", "No such file"]),
        (&["iozone", "--save", "taken"], &["already", "--replace"]),
        (&["show", &file, "--json", "--csv"], &["cannot be used with"]),
        (&["compare", "taken"], &["AFTER"]),
        (
            &["compare", "taken", &file, "--html", "/nowhere/x.html"],
            &["/nowhere/x.html", "No such"],
        ),
        (&["compare", "taken", "other"], &["no file \"other\""]),
        (&["save", "x", &file, "--store", "/dev/null/x"], &["/dev/null/x", "Not a directory"]),
    ];
    for (arguments, words) in cases {
        let error = place.refused(arguments);
        for word in *words {
            assert!(error.contains(word), "{arguments:?}: {word:?} is not in: {error}");
        }
    }
    place.succeed(&["save", "taken", &file, "--replace"]);
}
