use super::*;

fn options() -> Options {
    Options {
        size: 4 << 20,
        files: 1024,
        threads: 2,
        seconds: 1,
        repetitions: 1,
        limit: Duration::from_secs(120),
        further: Vec::new(),
    }
}

fn values(readings: &Readings) -> Vec<(&str, f64)> {
    readings.list.iter().map(|reading| (reading.test.as_str(), reading.value)).collect()
}

/// As iozone 3.492 prints it; written after its documentation, as iozone is not free software.
const IOZONE: &str = "
	Include close in write timing
	Include fsync in write timing
	Output is in kBytes/sec
                                                              random    random     bkwd    record    stride
              kB  reclen    write  rewrite    read    reread    read     write     read   rewrite      read   fwrite
            4096       4   100000   110000   900000   950000   300000    50000
            4096    1024   200000   210000  1900000  1950000  1300000   250000

iozone test complete.
";

#[test]
fn iozones_table_is_read() {
    let readings = iozone::read(IOZONE).unwrap();
    assert_eq!(readings.list.len(), 12);
    let first = &readings.list[0];
    assert_eq!((first.test.as_str(), first.value), ("iozone-tool/write -ce", 102_400_000.0));
    assert_eq!(first.parameters["size"], 4_194_304.0);
    assert_eq!(first.parameters["record"], 4096.0);
    assert_eq!(readings.list[11].test, "iozone-tool/random write -ce");
    assert_eq!(readings.list[11].parameters["record"], 1_048_576.0);
    assert!(iozone::read("iozone: not enough memory").is_none());
}

/// As mdtest 3.4 prints it, and below as 4.0 does; written after the project's examples.
const MDTEST: &str = "
mdtest-3.4.0+dev was launched with 1 total task(s) on 1 node(s)
1 tasks, 1024 files/directories

SUMMARY rate: (of 1 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   Directory creation        :      15679.290      15679.290      15679.290          0.000
   File read                 :          0.000          0.000          0.000          0.000
   File removal              :      15187.032      15187.032      15187.032          0.000
-- finished at 12/14/2020 17:39:42 --
";
const MDTEST_4: &str = "
SUMMARY rate (in ops/sec): (of 1 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   File creation                9028.799       9028.799       9028.799          0.000
   Tree removal                   36.595         36.595         36.595          0.000

SUMMARY time: (of 1 iterations)
   File creation                   0.113          0.113          0.113          0.000
";

#[test]
fn mdtests_table_is_read() {
    let old = mdtest::read(MDTEST).unwrap();
    let wanted = [("mdtest/directory creation", 15_679.29), ("mdtest/file removal", 15_187.032)];
    assert_eq!(values(&old), wanted);
    assert_eq!(old.list[0].parameters["files"], 1024.0);
    let new = mdtest::read(MDTEST_4).unwrap();
    let wanted = [("mdtest/file creation", 9028.799), ("mdtest/tree removal", 36.595)];
    assert_eq!(values(&new), wanted);
    assert!(mdtest::read("MPI_Init failed").is_none());
}

/// As bonnie++ 2.00a printed it here.
const BONNIE: &str = "
1.98,2.00a,side,1,1795266252,16M,,8192,5,720,37,+++++,+++,+++++,+++,1277,40,+++++,+++,+++++,+++,1,,,,,524,32,+++++,\
+++,+++++,+++,530,35,+++++,+++,+++++,+++,44500us,8053us,4136us,22632us,81us,30447us,109ms,47us,8040us,24354us,7us,4076us
";

#[test]
fn bonnies_line_is_read_and_what_was_too_soon_is_said() {
    let readings = bonnie::read(BONNIE).unwrap();
    let wanted = [
        ("bonnie++/per-character write", 737_280.0),
        ("bonnie++/per-character write %CP", 37.0),
        ("bonnie++/per-character read", 1_307_648.0),
        ("bonnie++/per-character read %CP", 40.0),
        ("bonnie++/sequential create", 524.0),
        ("bonnie++/sequential create %CP", 32.0),
        ("bonnie++/random create", 530.0),
        ("bonnie++/random create %CP", 35.0),
    ];
    assert_eq!(values(&readings), wanted);
    assert_eq!(readings.list[0].parameters["size"], 16_777_216.0);
    assert_eq!(readings.list[4].parameters["files"], 1024.0);
    assert!(readings.notes[0].contains("block write, rewrite, block read"), "{:?}", readings.notes);
    assert!(bonnie::read("1.98,2.00a,side").is_none());
    assert!(bonnie::read("9.99,").is_none());
    // Older lines have two fields less before the first test: each figure would get the next one's name.
    let older = BONNIE.replace("1.98,2.00a", "1.97,1.97").replace(",8192,5,", ",");
    assert!(bonnie::read(&older).is_none());
}

/// Where the arguments of fio are that begin with this.
fn at(arguments: &[OsString], wanted: &str) -> Vec<usize> {
    let found = arguments.iter().enumerate();
    let found = found.filter(|(_, one)| one.to_string_lossy().starts_with(wanted));
    found.map(|(at, _)| at).collect()
}

/// A run that was interrupted left processes of fio, which made sessions of their own and went on reading and writing.
#[test]
fn jobs_of_fio_are_threads_so_that_they_end_with_it() {
    let arguments = Tool::Fio.arguments(&options(), Path::new("d"));
    let (jobs, threads) = (at(&arguments, "--name="), at(&arguments, "--thread"));
    assert_eq!(jobs.len(), threads.len());
    let follows = |(job, thread): (&usize, &usize)| job < thread && thread - job < 5;
    assert!(jobs.iter().zip(&threads).all(follows), "{arguments:?}");
}

#[test]
fn what_is_given_to_fio_goes_to_each_of_its_jobs() {
    let options = Options { further: vec!["--direct=1".into()], ..options() };
    let arguments = Tool::Fio.arguments(&options, Path::new("d"));
    let (jobs, given) = (at(&arguments, "--name="), at(&arguments, "--direct=1"));
    assert_eq!(jobs.len(), given.len());
    let mut ends = jobs.iter().skip(1).copied().chain([arguments.len()]);
    assert!(given.iter().all(|&given| Some(given + 1) == ends.next()), "{arguments:?}");
}

/// As dbench 4.00 printed it here.
const DBENCH: &str = "
   2     13668   181.47 MB/sec  execute   1 sec  latency 37.136 ms
 Flush            893     2.459    37.126

Throughput 181.47 MB/sec  2 clients  2 procs  max_latency=37.136 ms
";

#[test]
fn dbenchs_last_line_is_read() {
    let readings = dbench::read(DBENCH).unwrap();
    let wanted = [("dbench/throughput", 181_470_000.0), ("dbench/longest wait", 0.037_136)];
    assert_eq!(values(&readings), wanted);
    assert_eq!(readings.list[0].parameters["clients"], 2.0);
    assert!(dbench::read("Throughput of nothing").is_none());
}

#[test]
fn fios_json_is_read_after_its_warnings() {
    let job = r#"{"jobname": "random read", "read": {"io_bytes": 4096, "bw_bytes": 8192, "iops": 2.5,
        "clat_ns": {"percentile": {"99.000000": 250000}}}, "write": {"io_bytes": 0}}"#;
    let output = format!("fio: a warning\n{{\"fio version\": \"fio-3.33\", \"jobs\": [{job}]}}\n");
    let readings = fio::read(&output).unwrap();
    let wanted = [
        ("fio/random read", 8192.0),
        ("fio/random read", 2.5),
        ("fio/random read, 99 % within", 0.000_25),
    ];
    assert_eq!(values(&readings), wanted);
    assert!(fio::read("{\"jobs\": 3}").is_none());
    assert!(fio::read("fio: error").is_none());
}

/// Ctrl-C lost jobs of minutes that were done; the one that was not has no figure.
#[test]
fn what_fio_has_done_before_it_is_to_stop_is_read() {
    let job = |name: &str, read: u32, write: u32| {
        let done = |bytes| format!(r#"{{"io_bytes": {bytes}, "bw_bytes": {bytes}, "iops": 1.0}}"#);
        let (read, write) = (done(read), done(write));
        format!(r#"{{"jobname": "{name}", "read": {read}, "write": {write}}}"#)
    };
    let jobs = [job("sequential write", 0, 8), job("sequential read", 7, 0)];
    let stopped = [jobs[0].clone(), jobs[1].clone(), job("random read", 0, 0)].join(", ");
    let output = format!("Jobs: 1 (f=1): [r(1)][6.0%][eta 00m:21s]\r{{\"jobs\": [{stopped}]}}");
    assert_eq!(values(&fio::read_stopped(&output).unwrap()), [("fio/sequential write", 8.0)]);
    assert_eq!(fio::read(&output).unwrap().list.len(), 2);
    let first = format!("{{\"jobs\": [{}]}}", jobs[0]);
    assert!(fio::read_stopped(&first).unwrap().list.is_empty());
}

/// Of each run it was said that the time left is unknown, until it was over.
#[test]
fn how_far_fio_is_it_says_itself() {
    let said = "Jobs: 2 (f=2): [P(2)][0.0%][eta 49710d:06h:28m:14s]\r\
                Jobs: 2 (f=2): [_(4),w(2)][62.5%][r=45.2MiB/s,w=384MiB/s][eta 00m:03s]\rJobs: 2";
    assert_eq!(fio::progress(said), Some(625));
    for unknown in ["", "Jobs: 1 (f=1)", "Jobs: 1 (f=1): [m(1)][-.-%][eta 00m:00s]", "x%]"] {
        assert_eq!(fio::progress(unknown), None, "{unknown}");
    }
}

/// The page had neither fio's release nor what it was told to do.
#[test]
fn a_tools_release_and_command_line_are_known() {
    let said = |tool: Tool, output: &str| tool.version(output).unwrap_or_default();
    assert_eq!(said(Tool::Fio, "{\"fio version\" : \"fio-3.33\",\n"), "3.33");
    assert_eq!(said(Tool::Bonnie, BONNIE), "2.00a");
    assert_eq!(said(Tool::Mdtest, MDTEST), "3.4.0+dev");
    assert_eq!(said(Tool::Dbench, "dbench version 4.00 - Copyright\n"), "4.00");
    assert_eq!(said(Tool::Iozone, "\tVersion $Revision: 3.492 $\n"), "3.492");
    assert_eq!(Tool::Iozone.version(IOZONE), None);
    let command = Tool::Fio.command(&options(), Path::new(DIRECTORY));
    let begin = "fio --output-format=json --group_reporting --eta=always";
    assert!(command.starts_with(begin) && command.contains(" --directory=DIR "), "{command}");
    assert!(command.contains(" '--name=sequential write' --stonewall "), "{command}");
}

/// Reads and writes of one job were taken for samples of one figure.
#[test]
fn a_job_of_fio_that_reads_and_writes_has_figures_of_both() {
    let done = |bytes: u32, speed: u32| {
        format!(r#"{{"io_bytes": {bytes}, "bw_bytes": {speed}, "iops": {}.0}}"#, speed / 4096)
    };
    let job = |name: &str, read: String, write: String| {
        format!(r#"{{"jobname": "{name}", "read": {read}, "write": {write}}}"#)
    };
    let mixed = job("random write", done(4096, 8192), done(8192, 16_384));
    let one = job("sequential write", done(0, 0), done(8192, 4096));
    let output = format!("{{\"jobs\": [{mixed}, {one}]}}");
    let readings = fio::read(&output).unwrap();
    let wanted = [
        ("fio/random write, read", 8192.0),
        ("fio/random write, read", 2.0),
        ("fio/random write, write", 16_384.0),
        ("fio/random write, write", 4.0),
        ("fio/sequential write", 4096.0),
    ];
    assert_eq!(values(&readings), wanted);
}

/// Figures of 64 KiB stood in the row of 4 KiB, and were compared with those.
#[test]
fn further_arguments_change_what_figures_are_said_to_be_of() {
    let read = |options: &str| {
        let done = r#""read": {"io_bytes": 1, "bw_bytes": 2, "iops": 3}, "write": {"io_bytes": 0}"#;
        let job = format!(r#"{{"jobname": "random read", "job options": {{{options}}}, {done}}}"#);
        let readings = fio::read(&format!("{{\"jobs\": [{job}]}}")).unwrap();
        let parameters = readings.list[0].parameters.clone().into_iter();
        parameters.map(|(name, value)| (name, value as u64)).collect::<Vec<_>>()
    };
    let said = |block, size, threads| {
        let all = [("block", block), ("size", size), ("threads", threads)];
        all.map(|(name, value): (&str, u64)| (name.to_owned(), value)).to_vec()
    };
    // fio says an option that was given twice twice, the one that counts last.
    let twice = r#""size": "16777216", "bs": "4k", "bs": "64k", "numjobs": "1", "numjobs": "2""#;
    assert_eq!(read(twice), said(65_536, 16 << 20, 2));
    let units = r#""size": "2G", "bs": "1M", "numjobs": "1""#;
    assert_eq!(read(units), said(1 << 20, 2 << 30, 1));
    // What is not one number is no parameter.
    let ranges = r#""size": "50%", "bs": "4k", "bssplit": "4k/50:64k/50", "numjobs": "3""#;
    assert_eq!(read(ranges), [("threads".to_owned(), 3_u64)]);
    let more = MDTEST.replace("1 tasks, 1024 files", "1 tasks, 5000 files");
    assert_eq!(mdtest::read(&more).unwrap().list[0].parameters["files"], 5000.0);
    assert!(mdtest::read(MDTEST_4).unwrap().list[0].parameters.is_empty());
}

fn once(script: &str, limit: Duration, watch: &Watch) -> Result<process::Ended> {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["-c".into(), script.into()];
    let program = Path::new("/bin/sh");
    process::run(program, &arguments, directory.path(), limit, watch, Manner::QUIET)
}

#[test]
fn a_tool_is_ended_with_its_children_when_its_time_is_over_or_the_run_is_stopped() {
    let began = std::time::Instant::now();
    let watch = Watch::default();
    // The child holds the pipes open; it must go too.
    let error = once("sleep 1000 & sleep 1000", Duration::from_millis(100), &watch).err().unwrap();
    assert!(error.cause.contains("did not end within"), "{error}");
    let left = once("sleep 1000 & exit 3", Duration::from_secs(60), &watch).unwrap();
    assert!(!left.succeeded && left.how.contains('3'), "{}", left.how);
    watch.stop();
    let error = once("sleep 1000", Duration::from_secs(1000), &watch).err().unwrap();
    assert_eq!(error.kind, Kind::Stopped);
    assert!(began.elapsed() < Duration::from_secs(900), "nobody waited for the sleepers");
}

#[test]
fn a_tool_that_prints_much_does_not_hang() {
    let much = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; echo last >&2";
    let ended = once(much, Duration::from_secs(60), &Watch::default()).unwrap();
    assert!(ended.succeeded && ended.output.len() == 220_000 && ended.all.ends_with("last\n"));
}

/// It was killed at once, with all that it had measured.
#[test]
fn a_tool_that_tells_what_it_has_measured_is_asked_for_it_before_it_ends() {
    let (watch, directory) = (Watch::default(), tempfile::tempdir().unwrap());
    let script = "trap 'echo told; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let arguments = ["-c".into(), script.into()];
    let heard = |text: &str| {
        if text.contains("ready") {
            watch.stop();
        }
    };
    let (program, limit) = (Path::new("/bin/sh"), Duration::from_secs(600));
    let manner = Manner { tells: true, heard: &heard };
    let ended = process::run(program, &arguments, directory.path(), limit, &watch, manner).unwrap();
    assert!(ended.stopped && ended.output.ends_with("told\n"), "{}", ended.all);
}
