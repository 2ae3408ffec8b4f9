//! What files take is what `strake plan` says they do.

use std::fs::{self, File};
use std::io::Write;
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
        ("--copies 2", "2 copies on 1 targets"),
        ("--servers 0", "--servers: at least one"),
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
    let (code, said) = plan("--servers 900 --clients 2500");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("DOES NOT FIT: each server would have"), "{said}");
    assert_eq!(plan("--servers 4 --clients 40").0, Some(0));
}
