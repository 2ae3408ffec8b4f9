//! The protocols of the studies, and their published figures.

use super::*;
use crate::plan::Before;
use crate::report::table;
use crate::result::Rule;
use crate::testing::measure;
use crate::work::Job;
use std::collections::BTreeSet;

const QUICK: Options =
    Options { quick: true, repetitions: None, verify: false, seed: 1, part: Part::ALL };
const WHOLE: Options =
    Options { quick: false, repetitions: None, verify: false, seed: 1, part: Part::ALL };

fn tests(plan: &Plan) -> BTreeSet<&str> {
    let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
    steps.flat_map(|step| &step.measures).map(|measure| measure.test.as_str()).collect()
}

#[test]
fn study_1_has_eight_sizes_both_ways_and_drops_the_extremes_of_25() {
    let plan = plan(Study::One, None, &WHOLE).unwrap();
    assert_eq!((plan.cells.len(), plan.repetitions, plan.rule), (16, 25, Rule::TrimmedMean));
    let expected = [
        "iozone/read",
        "iozone/read -c cold",
        "iozone/reread",
        "iozone/reread -c cold",
        "iozone/rewrite",
        "iozone/rewrite -ce",
        "iozone/write",
        "iozone/write -ce",
    ];
    assert_eq!(tests(&plan), expected.into());
    assert_eq!(plan.cells[15].parameters["size"], 256.0 * 1048576.0);
    assert_eq!(plan.published.len(), 2 * 96, "beside both ways of timing");
    assert!(plan.notes.iter().any(|note| note.contains("records are 1 MiB")));
    let gluster = plan.published.iter().find(|figure| {
        figure.side.starts_with("Gluster")
            && figure.test == "iozone/read"
            && figure.parameters["size"] == 4.0 * 1048576.0
    });
    assert_eq!(gluster.unwrap().samples, [20.75e6]);
}

#[test]
fn study_2_asks_for_every_disk_with_every_number_of_servers() {
    let settings = settings(Study::Two, false);
    assert_eq!(settings.len(), 16);
    let plan = plan(Study::Two, Some(&settings[1]), &WHOLE).unwrap();
    assert_eq!(plan.cells.len(), 6);
    // A file of 1 MiB lies on all servers, and the reader is told.
    assert!(settings.iter().all(|setting| setting.chunk_size == Some(64 << 10)));
    assert!(plan.notes.iter().any(|note| note.contains("chunks are 64 KiB")));
    assert!(plan.cells.iter().all(|cell| cell.parameters["servers"] == 2.0));
    for setting in &settings {
        let plan = super::plan(Study::Two, Some(setting), &WHOLE).unwrap();
        assert_eq!(plan.published.len(), 4, "{setting:?}");
    }
    // Beside two servers with disks of 2.83 MB/s stand what the study has of exactly these.
    let pvfs: Vec<_> = plan.published.iter().filter(|figure| figure.side == "PVFS2").collect();
    assert_eq!(pvfs.len(), 2);
    assert!((pvfs[0].samples[0] - 0.73 * 2.0 * 2.83e6).abs() < 1.0);
    assert_eq!(plan.published.iter().filter(|figure| figure.side == "ext3").count(), 2);
}

/// A study on directories that were there had no limits and no published figures of its setting.
#[test]
fn in_a_testbed_that_is_there_study_2_has_its_setting() {
    let testbed = crate::testbed::Plan {
        name: "t".into(),
        servers: 2,
        clients: 1,
        targets: 1,
        link: "100mbit".parse().ok(),
        client_link: "100mbit".parse().ok(),
        disk: "2.83MB/s".parse().ok(),
        chunk_size: None,
        cluster: false,
    };
    let setting = Setting::of(&testbed);
    assert_eq!((setting.servers, setting.link, setting.disk), (2, Some(12.5e6), Some(2.83e6)));
    let plan = plan(Study::Two, Some(&setting), &WHOLE).unwrap();
    assert_eq!(plan.published.len(), 4);
    let parameters = Study::Two.parameters(&setting);
    assert_eq!((parameters["servers"], parameters["disk"]), (2.0, 2.83e6));
    assert!(plan.cells.iter().all(|cell| cell.parameters["servers"] == 2.0));
}

#[test]
fn study_3_tells_the_first_read_from_the_nine_after_it() {
    let plan = plan(Study::Three, None, &WHOLE).unwrap();
    let count = |test: &str| {
        let steps = plan.cells.iter().flat_map(|cell| &cell.steps);
        steps.filter(|step| step.measures.iter().any(|m| m.test == test)).count()
    };
    let counts = ["first", "cached", "large"].map(|kind| count(&format!("sequential/{kind} read")));
    assert_eq!(counts, [1, 9, 5]);
    let memory = crate::machine::memory().unwrap() as f64;
    assert!(
        plan.cells[0].parameters["size"] < memory
            && plan.cells[1].parameters["size"] > 4.0 * memory
    );
    assert_eq!(plan.published.len(), 15);
}

/// In a testbed the smaller file did not fit the memory, which held it twice.
#[test]
fn study_3_in_a_testbed_reads_files_that_client_and_servers_can_both_keep() {
    let setting = settings(Study::Three, false)[0];
    let sizes = |plan: Plan| plan.cells.iter().map(|cell| cell.needs.bytes).collect::<Vec<_>>();
    let alone = sizes(plan(Study::Three, None, &WHOLE).unwrap());
    let shared = sizes(plan(Study::Three, Some(&setting), &WHOLE).unwrap());
    assert!(2 * shared[0] <= alone[0] + (4 << 20) && shared[1] > 4 * shared[0], "{shared:?}");
}

/// Disks of 127 MB/s stood beside those of 6.4, and made Strake look eighteen times slower.
#[test]
fn in_study_3s_testbeds_it_is_said_that_the_disks_are_not_the_studys() {
    let is_told = |setting: Option<&Setting>| {
        let plan = plan(Study::Three, setting, &QUICK).unwrap();
        plan.notes.iter().any(|note| note.contains("a twentieth"))
    };
    assert!(is_told(settings(Study::Three, true).first()) && !is_told(None));
}

#[test]
fn a_part_of_a_study_is_chosen_by_what_it_varies() {
    let part = Part { servers: vec![1, 4], disks: vec![2_830_000, 6_830_000], ..Part::ALL };
    let some = Options { part, ..QUICK };
    assert_eq!(chosen(Study::Two, &some).unwrap().len(), 4);
    assert!(chosen(Study::One, &some).is_err() && plan(Study::Four, None, &some).is_err());
    let none = Options { part: Part { servers: vec![77], ..Part::ALL }, ..QUICK };
    assert!(chosen(Study::Three, &none).unwrap_err().next.is_some());
    let part = Part { sizes: vec![1 << 20, 1 << 24], threads: vec![2], ..Part::ALL };
    let matrix = plan(Study::Two, None, &Options { part, ..WHOLE }).unwrap();
    assert_eq!(matrix.cells.len(), 2);
    assert_eq!(matrix.needs().bytes, 3 << 24);
    let part = Part { sizes: vec![4 << 20], ..Part::ALL };
    let small = plan(Study::One, None, &Options { part, ..WHOLE }).unwrap();
    assert!(small.cells.len() == 2 && small.needs().bytes < 16 << 20);
    assert!(chosen(Study::Four, &QUICK).unwrap().is_empty());
}

#[test]
fn the_quick_study_3_reads_as_many_chunks_from_each_server() {
    let plan = plan(Study::Three, None, &QUICK).unwrap();
    let chunk = strake_types::limits::CHUNK_BYTES_DEFAULT;
    for cell in &plan.cells {
        let chunks = cell.parameters["size"] as u64 / chunk;
        assert!((1..=5).all(|servers| chunks.is_multiple_of(servers)), "{chunks}");
    }
}

#[test]
fn study_4_is_iozones_automatic_mode_with_close_and_bonnie() {
    let plan = plan(Study::Four, None, &WHOLE).unwrap();
    let tests = tests(&plan);
    assert!(tests.contains("iozone/write -c") && tests.contains("bonnie/random delete"));
    let largest = plan.cells.iter().filter_map(|cell| cell.parameters.get("size"));
    assert!(largest.fold(0.0, |a: f64, b| a.max(*b)) >= 2.0 * 1073741824.0);
    // Neither iozone without -e nor the bonnie++ of that time waits for the disk.
    let jobs = plan.cells.iter().flat_map(|cell| &cell.steps).flat_map(|step| &step.jobs);
    for job in jobs {
        assert!(!matches!(job, Job::File(pass) if pass.ending.flush), "{job:?}");
    }
    assert!(plan.notes.iter().any(|note| note.contains("as in 1.03")), "{:?}", plan.notes);
    assert!(settings(Study::Four, false).is_empty());
}

#[test]
fn every_quick_study_runs_and_its_published_figures_stand_in_the_same_table() {
    for study in [Study::One, Study::Two, Study::Three, Study::Four] {
        let first = settings(study, true).first().copied();
        let mut plan =
            plan(study, first.as_ref(), &Options { repetitions: Some(1), ..QUICK }).unwrap();
        // The smallest cell is enough, and dropping caches would disturb others on this machine.
        plan.cells.truncate(1);
        for step in &mut plan.cells[0].steps {
            step.before = Before::Nothing;
        }
        let report = measure(&plan);
        assert_eq!(report.title, study.title());
        let rows = table::of(&report, |_| true).rows;
        let beside = rows.iter().any(|row| row.cells.iter().flatten().count() > 1);
        assert!(beside || report.figures.iter().all(|f| f.origin == Origin::Measured), "{study:?}");
    }
}

#[test]
fn reports_of_several_settings_become_one() {
    let settings = settings(Study::Three, true);
    let report = |setting| {
        let options = Options { repetitions: Some(1), ..QUICK };
        let mut plan = plan(Study::Three, Some(setting), &options).unwrap();
        plan.cells.truncate(1);
        plan.cells[0].steps.iter_mut().for_each(|step| step.before = Before::Nothing);
        measure(&plan)
    };
    let mut all = report(&settings[0]);
    join(&mut all, report(&settings[1]));
    let servers: BTreeSet<_> = all
        .figures
        .iter()
        .filter(|figure| figure.origin == Origin::Measured)
        .map(|figure| figure.parameters["servers"] as u32)
        .collect();
    assert_eq!(servers, [1, 5].into());
    assert_eq!(all.sides.len(), 1);
    assert!(all.charts.iter().all(|chart| chart.across == "servers"));
}

#[test]
fn there_are_four_studies() {
    assert!((1..=4).all(|number| Study::of_number(number).is_ok()));
    assert!(Study::of_number(0).is_err() && Study::of_number(5).is_err());
}
