//! What files take is what `strake plan` says they do.

use std::fs::{self, File};
use std::io::Write;
use strake::size;
use strake_tests::cluster::{Servers, run, succeed};

const DIRECTORIES: usize = 4;
const PER_DIRECTORY: usize = 500;
const SMALL_BYTES: usize = 1_000;
const LARGE: usize = 60;
const LARGE_BYTES: usize = 700_000;

fn plan(words: &[&str]) -> serde_json::Value {
    let said = succeed(["plan", "--json"].into_iter().chain(words.iter().copied()));
    serde_json::from_str(&said).expect("it is JSON")
}

/// Of records and contents: within a quarter; of memory it says what is enough.
#[test]
fn files_take_what_the_plan_says() {
    let mut servers = Servers::start();
    let mount = servers.mount("m", "");
    for dir in 0..DIRECTORIES {
        fs::create_dir(mount.at(&format!("directory{dir}"))).unwrap();
        for nth in 0..PER_DIRECTORY {
            let path = mount.at(&format!("directory{dir}/file-of-a-name-{nth:06}"));
            File::create(path).unwrap().write_all(&[7; SMALL_BYTES]).unwrap();
        }
    }
    for nth in 0..LARGE {
        let mut file = File::create(mount.at(&format!("large-file-{nth:09}"))).unwrap();
        file.write_all(&vec![7; LARGE_BYTES]).unwrap();
        file.sync_all().unwrap();
    }
    let small = DIRECTORIES * PER_DIRECTORY;
    let (files, bytes) = (small + LARGE, small * SMALL_BYTES + LARGE * LARGE_BYTES);
    let (files, bytes) = (files.to_string(), bytes.to_string());
    let part = format!("{}%", small as f64 * 100.0 / (small + LARGE) as f64);
    let words = ["--files", &files, "--bytes", &bytes, "--small", &part, "--small-size", "1000"];
    let takes = &plan(&words)["takes"];
    let number = |of: &str, what: &str| takes[of][what].as_f64().unwrap();

    let used = succeed(["df", "--json", "--cluster", servers.address()]);
    let used: serde_json::Value = serde_json::from_str(&used).unwrap();
    let used = used[0]["used_bytes"].as_f64().unwrap();
    let planned = number("storage", "disk_bytes");
    assert!((0.75..1.25).contains(&(used / planned)), "targets hold {used}, planned are {planned}");

    let enough = number("metadata", "memory_bytes") + number("storage", "memory_bytes");
    let resident = servers.server().resident_bytes() as f64;
    assert!(resident < enough, "the server has {resident} in memory, planned are {enough}");

    drop(mount);
    servers.server().stop();
    let (data, file) = (servers.directory().join("target0"), servers.directory().join("export"));
    let (data, shown) = (data.display().to_string(), file.display().to_string());
    succeed(["meta", "export", "--data", &data, &shown]);
    let records = fs::metadata(&file).unwrap().len() as f64;
    let planned = number("metadata", "records_bytes");
    assert!(
        (0.75..1.25).contains(&(records / planned)),
        "records are {records}, planned {planned}"
    );
}

#[test]
fn what_cannot_be_planned_is_refused_and_what_does_not_fit_is_said() {
    let plan = |words: &str| {
        let all = ["plan", "--files", "1M", "--bytes", "1T"].into_iter();
        let output = run(all.chain(words.split_whitespace()));
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    for (words, cause) in [
        ("--copies 2", "2 copies on 1 target;"),
        (
            "--copies 3 --servers 2",
            "next: strake plan --files 1M --bytes 1T --copies 3 --servers 3",
        ),
        ("--copies 4 --servers 9", "4 copies on 9 targets"),
        ("--servers 0", "--servers: at least one"),
        ("--clients 0", "next: strake plan --files 1M --bytes 1T --clients 1"),
        ("--servers 2M", "--servers: 2M are too many"),
        ("--meta-servers 0", "--meta-servers: at least one"),
        ("--creates 1e30", "is too many"),
        ("--clients many", "is no count"),
        ("--small 120%", "is no percentage"),
        ("--small-size 1M", "files of up to 8 KiB"),
        ("--chunk 100K", "a power of two"),
        ("--link fast", "is no rate"),
        ("--engine stone", "embedded"),
    ] {
        let (code, said) = plan(words);
        assert_eq!(code, Some(2), "{words}: {said}");
        assert!(said.contains(cause), "{words}: {said}");
    }
    for (words, cause) in [
        ("--files 0 --bytes 1T", "next: strake plan --files 1 --bytes 1T"),
        ("--files 10e9 --bytes 9000P", "next: strake plan --files 10G --bytes 2048P"),
        ("--files 10e9 --bytes 99999999P", "is more than any size"),
        ("--bytes 1T", "--files"),
    ] {
        let output = run(["plan"].into_iter().chain(words.split_whitespace()));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(cause), "{words}: {said}");
    }
    let (code, said) = plan("--servers 900 --clients 2500");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("DOES NOT FIT: each server would have"), "{said}");
    assert_eq!(plan("--servers 4 --clients 40").0, Some(0));
}

/// The engines, their bounds and the one that is taken are on one screen, and the same is in JSON.
#[test]
fn a_plan_names_engine_metadata_servers_and_shares() {
    let words = "--files 500M --bytes 1P --servers 20 --clients 300 --creates 40K --stats 90K";
    let all: Vec<&str> = words.split_whitespace().collect();
    let said = succeed(["plan"].into_iter().chain(all.iter().copied()));
    let row = |first: &str| {
        let found = said.lines().find(|line| line.starts_with(first));
        found.unwrap_or_else(|| panic!("no {first}: {said}")).to_owned()
    };
    assert!(row("metadata server (6)").contains("for leases"), "{said}");
    assert!(row("PostgreSQL").contains("180 connections"), "{said}");
    assert!(row("  embedded").contains("NO: 40,000 creates/s, at most 26,988"), "{said}");
    assert!(row("> postgres").contains("servers share a volume"), "{said}");
    assert!(row("  etcd").contains("NO: 500M files, at most 1.5M"), "{said}");
    assert!(row("  tikv").contains("NO: creates were never measured"), "{said}");
    assert!(row("Creates/s of 1, 2, 4, 8").contains("10,423  17,719  30,122"), "{said}");
    assert!(row("Advice: make the volume").contains("--shares 24"), "{said}");
    assert!(said.lines().count() <= 24 && !said.contains("DOES NOT FIT"), "{said}");

    let takes = &plan(&all)["takes"];
    let engine = |nth: usize| takes["engines"][nth]["engine"].as_str().unwrap();
    assert_eq!([0, 1, 2, 3].map(engine), ["embedded", "postgres", "etcd", "tikv"]);
    let number = |what: &str| takes["metadata"][what].as_u64().unwrap();
    assert_eq!((number("servers"), number("shares")), (6, 24));

    let output = run(["plan", "--engine", "etcd"].into_iter().chain(all.iter().copied()));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told = said.lines().filter(|line| line.starts_with("DOES NOT FIT: etcd: "));
    assert!(told.clone().all(|line| line.ends_with("--engine postgres does")), "{said}");
    assert_eq!(told.count(), 2, "{said}");
}

/// docs/design/0061-capacity.md has what its command prints.
#[test]
fn the_paper_says_what_the_plan_says() {
    let paper = include_str!("../../docs/design/0061-capacity.md");
    let paper = paper.split("## 10 billion files, 1,000 servers").nth(1).expect("the section");
    let command = paper.lines().find_map(|line| line.strip_prefix("strake plan ")).unwrap();
    assert!(command.starts_with("--files 10e9 --bytes 40P --servers 1000 "), "{command}");
    let words: Vec<&str> = command.split_whitespace().collect();
    let takes = &plan(&words)["takes"];
    let mut rows = 0;
    for line in paper.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, place, is] = cells[..] else { panic!("three cells: {line}") };
        let Some(place) = place.strip_prefix('`').and_then(|place| place.strip_suffix('`')) else {
            continue;
        };
        let Some(value) = takes.pointer(&format!("/{}", place.replace('.', "/"))) else { continue };
        let shown = match value.as_u64() {
            Some(number) => vec![size::show(number), size::show_count(number)],
            None => vec![value.as_str().unwrap_or("neither number nor text").to_owned()],
        };
        assert!(shown.iter().any(|shown| shown == is), "{what} ({place}): {is} is {shown:?}");
        rows += 1;
    }
    assert_eq!(rows, 24, "all rows are compared");
}
