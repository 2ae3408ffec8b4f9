//! The plans of iozone's tests, and that they run.

use super::*;
use crate::plan::{Before, Step};
use crate::result::Unit;
use crate::testing::measure;
use crate::work::file::{Calls, Direction, Pass};
use crate::work::{Job, Order};

fn options() -> Options {
    Options {
        sizes: vec![(64 << 10, vec![4 << 10])],
        protocol: Protocol::VERIFYING,
        ..Options::default()
    }
}

/// The pass of the first worker of each step, with the step's name.
fn passes(plan: &Plan) -> Vec<(String, &Pass)> {
    let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
    let named = |step: &Step| {
        step.measures.first().map_or("preparing".to_owned(), |measure| measure.test.clone())
    };
    let mut passes = Vec::new();
    for step in steps {
        let Job::File(pass) = &step.jobs[0] else { panic!("{step:?} is no pass over a file") };
        passes.push((named(step), pass));
    }
    passes
}

#[test]
fn every_test_runs_verified_and_leaves_nothing() {
    let report = measure(&plan(&options()).unwrap());
    let names: Vec<_> = report.figures.iter().map(|figure| figure.test.as_str()).collect();
    assert_eq!(names.len(), Options::default().tests.len(), "{names:?}");
    assert!(report.figures.iter().all(|f| f.samples.len() == 1 && f.samples[0] > 0.0));
}

#[test]
fn several_workers_on_own_files_on_one_file_by_mappings_and_by_rings() {
    for shared_file in [false, true] {
        for (mapped, in_flight) in [(false, None), (true, None), (false, Some(4))] {
            let workers = 3;
            let ending = Ending { flush: true, close: true };
            let more = Options { workers, shared_file, mapped, in_flight, ending, ..options() };
            let report = measure(&plan(&more).unwrap());
            assert!(report.figures.iter().all(|f| f.parameters["threads"] == 3.0));
        }
    }
}

#[test]
fn a_name_says_what_the_worker_does() {
    let plan = plan(&options()).unwrap();
    let passes = passes(&plan);
    let of = |name: &str| passes.iter().find(|(test, _)| *test == name).unwrap().1;
    assert_eq!(of("iozone/backward read").order, Order::Backward);
    assert_eq!(of("iozone/stride read").order, Order::Stride { step: 17 });
    assert!(matches!(of("iozone/random write").order, Order::Shuffled { .. }));
    assert_eq!(of("iozone/record rewrite").order, Order::Same);
    assert_eq!(of("iozone/fread").calls, Calls::Stdio);
    assert_eq!(of("iozone/preadv").calls, Calls::Vectored);
    assert_eq!(of("iozone/repwrite").calls, Calls::Positioned);
    for (name, pass) in &passes {
        assert_eq!(name.contains("write"), pass.direction == Direction::Write, "{name}");
        assert_eq!(pass.bytes(), 64 << 10, "{name}");
    }
}

/// Of the last step of a plan's first cell, which workers write.
fn writers(options: &Options) -> Vec<bool> {
    let plan = plan(options).unwrap();
    let step = plan.cells[0].steps.last().unwrap();
    assert_eq!(step.measures[0].test, "iozone/random mix -e");
    let writes = |job: &Job| {
        let Job::File(pass) = job else { panic!("{job:?} is no pass over a file") };
        assert!(matches!(pass.order, Order::Shuffled { .. }));
        pass.direction == Direction::Write
    };
    assert_eq!(step.parameters["readers"], options.readers() as f64);
    step.jobs.iter().map(writes).collect()
}

#[test]
fn a_mix_has_readers_and_writers_by_turns_or_the_first_of_a_percentage_read() {
    let ending = Ending { flush: true, close: false };
    let tests = Test::select("8").unwrap();
    let mix = |workers, read_percent| Options {
        tests: tests.clone(),
        workers,
        read_percent,
        ending,
        ..options()
    };
    assert_eq!(writers(&mix(3, None)), [false, true, false]);
    assert_eq!(writers(&mix(4, Some(75))), [false, false, false, true]);
    assert_eq!(writers(&mix(4, Some(30))), [false, true, true, true]);
    assert_eq!(writers(&mix(2, Some(100))), [false, false]);
    for wrong in [mix(1, None), mix(4, Some(0)), mix(4, Some(101))] {
        assert!(plan(&wrong).is_err(), "{wrong:?}");
    }
    assert!(!Test::all(1).contains(&tests[0]) && Test::all(2).contains(&tests[0]));
}

#[test]
fn a_mix_is_verified_and_nothing_reads_after_it_on_own_files_and_on_one() {
    for shared_file in [false, true] {
        let mixed = Options { tests: Test::all(4), workers: 4, shared_file, ..options() };
        let plan = plan(&mixed).unwrap();
        let names: Vec<_> = passes(&plan).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[names.len() - 2..], ["iozone/random mix", "iozone/record rewrite"]);
        assert_eq!(measure(&plan).figures.len(), Test::all(4).len());
    }
}

#[test]
fn results_in_operations_count_records() {
    let per_second = Options { per_second: true, ..options() };
    let report = measure(&plan(&per_second).unwrap());
    assert!(report.figures.iter().all(|figure| figure.unit == Unit::PerSecond));
}

#[test]
fn named_files_are_used_by_all_tests_and_gone_afterwards() {
    let names = vec!["a".to_owned(), "b".to_owned()];
    let named = Options { tests: Test::all(2), workers: 2, names, ..options() };
    let plan = plan(&named).unwrap();
    assert!(passes(&plan).iter().all(|(_, pass)| pass.file == "a"));
    assert_eq!(plan.cells[0].named, ["a", "b"]);
    assert_eq!(measure(&plan).figures.len(), Test::all(2).len());
    for wrong in
        [Options { workers: 3, ..named.clone() }, Options { shared_file: true, ..named.clone() }]
    {
        assert!(super::plan(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn reading_alone_prepares_its_file_and_measures_only_the_reading() {
    let options = Options { tests: Test::select("1").unwrap(), cold: true, ..options() };
    let plan = plan(&options).unwrap();
    let names: Vec<_> = passes(&plan).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["preparing", "iozone/read cold", "iozone/reread cold"]);
    let before: Vec<_> = plan.cells[0].steps.iter().map(|step| step.before).collect();
    assert_eq!(before, [Before::Nothing, Before::Cool, Before::Cool]);
    // Dropping caches would disturb whatever else runs on this machine.
    let warm = Options { cold: false, ..options };
    assert_eq!(measure(&super::plan(&warm).unwrap()).figures.len(), 2);
}

/// With `-i 1 -i 0` the file was made for the reading, and "write" rewrote it.
#[test]
fn what_makes_a_file_comes_before_what_reads_it_however_tests_are_asked_for() {
    let tests = ["10", "1", "random-write", "9", "0"];
    let tests = tests.iter().flat_map(|text| Test::select(text).unwrap()).collect();
    let plan = plan(&Options { tests, ..options() }).unwrap();
    let names: Vec<_> = passes(&plan).into_iter().map(|(name, _)| name).collect();
    let expected = [
        "iozone/write",
        "iozone/rewrite",
        "iozone/read",
        "iozone/reread",
        "iozone/random write",
        "iozone/pwrite",
        "iozone/repwrite",
        "iozone/pread",
        "iozone/repread",
    ];
    assert_eq!(names, expected);
    assert_eq!(measure(&plan).figures.len(), expected.len());
}

#[test]
fn flags_that_change_a_test_are_in_its_name() {
    let open = Open { direct: true, synced: true, ..Open::default() };
    let ending = Ending { close: true, flush: true };
    let options = Options { open, ending, in_flight: Some(2), ..options() };
    let plan = plan(&options).unwrap();
    let names: Vec<_> = passes(&plan).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[0], "iozone/write -ceIoH");
    assert!(
        names.iter().any(|n| n == "iozone/read -cIH")
            && names.iter().any(|n| n == "iozone/fread -cI")
    );
}

#[test]
fn automatic_mode_has_iozones_sizes() {
    let all = automatic(FILE_MIN, FILE_MAX);
    let sizes: Vec<_> = all.iter().map(|(size, _)| size >> 10).collect();
    assert_eq!(
        sizes,
        [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288]
    );
    assert_eq!(all[0].1, [4096, 8192, 16384, 32768, 65536]);
    assert_eq!(all[9].1.first(), Some(&(64 << 10)));
    assert_eq!(all[13].1.last(), Some(&(16 << 20)));
}

#[test]
fn tests_are_selected_by_number_and_by_name() {
    let names = |text| Test::select(text).unwrap().iter().map(|t| t.name).collect::<Vec<_>>();
    assert_eq!(names("0"), ["write", "rewrite"]);
    assert_eq!(names("stride-read"), ["stride read"]);
    assert_eq!(names("8"), ["random mix"]);
    let error = Test::select("13").unwrap_err();
    assert!(error.next.unwrap().contains("12 (preadv, repreadv)"));
}

/// Four kinds of 4 EiB came to no byte at all, and the run filled the disk.
#[test]
fn what_no_disk_holds_is_not_taken_for_nothing() {
    let tests = ["0", "6", "9", "11"].iter().flat_map(|number| Test::select(number).unwrap());
    let huge =
        Options { sizes: vec![(1 << 62, vec![1 << 30])], tests: tests.collect(), ..options() };
    let plan = plan(&huge).unwrap();
    assert_eq!(plan.needs().bytes, u64::MAX);
    assert_eq!(plan.weight(1), u64::MAX);
}

#[test]
fn wrong_sizes_are_refused() {
    for wrong in [
        Options { sizes: vec![(100_000, vec![4096])], ..options() },
        Options { sizes: vec![(0, vec![4096])], ..options() },
        Options { sizes: vec![(4096, vec![0])], ..options() },
        Options { sizes: vec![(1 << 62, vec![4096])], workers: 4, ..options() },
        Options { workers: 0, ..options() },
        Options { mapped: true, in_flight: Some(2), ..options() },
    ] {
        assert!(plan(&wrong).is_err(), "{wrong:?}");
    }
}
