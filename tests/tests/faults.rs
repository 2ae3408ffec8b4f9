//! What is left after a kill, a full disk, garbage on the wire; how long operations wait; how much
//! memory a mount takes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strake_tests::cluster::{
    Process, Servers, Up, contents, counted, eventually, free_port, run, signal,
};
use strake_tests::made::pattern;
use strake_tests::servers::WAIT;
use strake_wire::frame::{Draft, FrameKind, ServiceClass};
use strake_wire::hello::Hello;

/// What a writer was told to be done: a path and what it holds.
type Ledger = Mutex<Vec<(PathBuf, u8, usize)>>;

/// Makes files of all sorts until the file system goes away under it; each is entered in the
/// ledger when the last call for it has returned.
fn keep_writing(directory: &Path, ledger: &Ledger, stop: &AtomicBool) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    for nth in 0.. {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let byte = nth as u8 | 1;
        let (draft, path) =
            (directory.join(format!("draft{nth}")), directory.join(nth.to_string()));
        let len = [100, 7_000, 9_000, 300_000, 2_000_000][nth % 5];
        let mut file = File::create(&draft)?;
        file.write_all(&vec![byte; len])?;
        if nth % 3 == 0 {
            file.sync_all()?;
        }
        // Closing sends everything. If that fails because all is gone, so does the rename.
        drop(file);
        fs::rename(&draft, &path)?;
        ledger.lock().unwrap().push((path, byte, len));
    }
    Ok(())
}

#[test]
fn acknowledged_names_and_synced_data_survive_a_kill_of_up() {
    let mut up = Up::start(&[]);
    let ledger = Ledger::default();
    for round in 0..3 {
        let stop = AtomicBool::new(false);
        let before = ledger.lock().unwrap().len();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let directory = up.mount().join(format!("round{round}-{writer}"));
                let (ledger, stop) = (&ledger, &stop);
                // It ends with an error when the file system goes.
                scope.spawn(move || keep_writing(&directory, ledger, stop).is_err());
            }
            while ledger.lock().unwrap().len() < before + 40 {
                std::thread::sleep(Duration::from_millis(10));
            }
            up.kill();
            stop.store(true, Ordering::Relaxed);
        });
        up.start_again();
        let ledger = ledger.lock().unwrap();
        for (path, byte, len) in ledger.iter() {
            let back = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let good = back.len() == *len && back.iter().all(|b| b == byte);
            assert!(
                good,
                "{}: {} of {len} bytes, {:?}...",
                path.display(),
                back.len(),
                back.first()
            );
        }
    }
}

/// The data files of all targets below a directory.
fn data_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => data_files(&path),
        false => vec![path],
    });
    let is_data = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("data-");
    found.filter(is_data).collect()
}

#[test]
fn rotten_bytes_on_a_target_are_an_error_and_never_wrong_contents() {
    const BLOCK: usize = 4096;
    let mut up = Up::start(&[]);
    let whole = pattern(3_000_000);
    let path = up.mount().join("file");
    fs::write(&path, &whole).unwrap();
    up.stop();
    let mut rotten = 0;
    for data in data_files(&up.data()) {
        let blocks = fs::read(&data).unwrap();
        let mut blocks = blocks.chunks_exact(BLOCK);
        let ours = blocks.position(|block| whole.chunks_exact(BLOCK).any(|own| own == block));
        let Some(block) = ours else { continue };
        let file = File::options().read(true).write(true).open(&data).unwrap();
        let (mut byte, at) = ([0], (block * BLOCK + 1000) as u64);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        rotten += 1;
    }
    assert!(rotten > 1, "the file lies on several targets");
    up.start_again();
    let error = fs::read(&path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    let (file, mut failed) = (File::open(&path).unwrap(), 0);
    for (nth, own) in whole.chunks_exact(BLOCK).enumerate() {
        let mut block = vec![0; BLOCK];
        match file.read_exact_at(&mut block, (nth * BLOCK) as u64) {
            Ok(()) => assert!(block == own, "block {nth}"),
            Err(_) => failed += 1,
        }
    }
    assert_eq!(failed, rotten);
}

#[test]
fn a_mount_waits_for_its_servers_and_goes_on() {
    let mut servers = Servers::start();
    let mount = servers.mount("m", "");
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(mount.at("open")).unwrap();
    file.write_all_at(&vec![1; 3_000_000], 0).unwrap();
    fs::write(mount.at("small"), "before").unwrap();
    let gone = options.open(mount.at("unlinked")).unwrap();
    gone.write_all_at(&vec![2; 200_000], 0).unwrap();
    fs::remove_file(mount.at("unlinked")).unwrap();
    servers.kill();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| fs::write(mount.at("new"), vec![5; 500_000]));
        let read = scope.spawn(|| fs::read(mount.at("small")));
        let written = scope.spawn(|| file.write_all_at(b"while it was away", 10));
        std::thread::sleep(Duration::from_millis(300));
        servers.start_again();
        made.join().unwrap().expect("a create waits");
        assert_eq!(read.join().unwrap().expect("a read waits"), b"before");
        written.join().unwrap().expect("a write waits");
    });
    file.sync_all().unwrap();
    assert!(contents(&mount.at("new")) == vec![5; 500_000]);
    let back = contents(&mount.at("open"));
    assert_eq!((back.len(), &back[10..27]), (3_000_000, b"while it was away".as_slice()));
    let mut bytes = vec![0; 200_000];
    gone.read_exact_at(&mut bytes, 0).expect("an unlinked file outlives its server's restart");
    assert!(bytes.iter().all(|&b| b == 2));
}

#[test]
fn an_operation_fails_when_the_wait_is_over() {
    let mut servers = Servers::start();
    let mount = servers.mount("m", "wait=5");
    // On a busy machine the servers may not answer within the wait.
    eventually(WAIT, "a write", || write_synced(&mount.at("file"), 1, b'x').is_ok());
    servers.kill();
    let error = fs::write(mount.at("new"), "y").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    servers.start_again();
    // The mount may not try to connect again within the wait.
    eventually(WAIT, "a write after the restart", || is_in_time(fs::write(mount.at("new"), "y")));
    let mut read = Vec::new();
    let mut read_all = || fs::read(mount.at("file")).map(|bytes| read = bytes);
    eventually(WAIT, "a read", || is_in_time(read_all()));
    assert_eq!(read, b"x");
}

/// False if the wait was over before; it fails for no other reason.
fn is_in_time(done: std::io::Result<()>) -> bool {
    if let Err(error) = &done {
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    done.is_ok()
}

/// Beginnings that look like something, and ends that do not come.
fn garbage() -> Vec<Vec<u8>> {
    let mut all = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0; 4096],
        vec![0xff; 4096],
        b"STRAKE".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
    ];
    let mut state = 0x9e37_79b9_u32;
    for len in [1, 7, 64, 100_000] {
        all.push(
            (0..len)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect(),
        );
    }
    all
}

/// Sends bytes and the end of input; true if the other side closes.
fn is_closed_after(mut stream: impl Read + Write, end: impl FnOnce(), bytes: &[u8]) -> bool {
    // The other side may close while we still send.
    let _closed = stream.write_all(bytes);
    end();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_closes_its_connection_and_nothing_else() {
    let mut servers = Servers::start();
    let mount = servers.mount("m", "");
    let file = File::create(mount.at("file")).unwrap();
    for (nth, bytes) in garbage().iter().enumerate() {
        let stream = TcpStream::connect(servers.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let half = stream.try_clone().unwrap();
        let end = || drop(half.shutdown(std::net::Shutdown::Write));
        assert!(is_closed_after(stream, end, bytes), "garbage number {nth}");
        file.write_all_at(bytes, nth as u64 * 200_000).unwrap();
        file.sync_all().unwrap();
    }
    let pid = servers.server().pid();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn garbage_on_the_socket_of_up_closes_its_connection_and_nothing_else() {
    let up = Up::start(&[]);
    let socket = up.data().join("strake.sock");
    for (nth, bytes) in garbage().iter().enumerate() {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let half = stream.try_clone().unwrap();
        let end = || drop(half.shutdown(std::net::Shutdown::Write));
        assert!(is_closed_after(stream, end, bytes), "garbage number {nth}");
        fs::write(up.mount().join("file"), bytes).unwrap();
    }
}

/// More than the bound, for what is not contents: code, threads, caches of names, the allocator.
const BESIDE_BYTES: u64 = 160 << 20;

#[test]
fn memory_of_a_mount_is_bounded_under_load() {
    let servers = Servers::start();
    let mut mount = servers.mount("m", "memory=32M");
    const FILE_BYTES: usize = 96 << 20;
    std::thread::scope(|scope| {
        for nth in 0..3 {
            let path = mount.at(&nth.to_string());
            scope.spawn(move || {
                let block = vec![nth as u8 + 1; 1 << 20];
                let mut file = File::create(&path).unwrap();
                for _ in 0..FILE_BYTES >> 20 {
                    file.write_all(&block).unwrap();
                }
                drop(file);
                let mut file = File::open(&path).unwrap();
                let mut buffer = vec![0; 1 << 20];
                let mut total = 0;
                loop {
                    match file.read(&mut buffer).unwrap() {
                        0 => break,
                        n => total += n,
                    }
                }
                assert_eq!(total, FILE_BYTES);
            });
        }
    });
    let resident = mount.process().peak_resident_bytes();
    let bound = (32 << 20) + BESIDE_BYTES;
    assert!(resident < bound, "{} MiB resident", resident >> 20);
}

#[test]
fn a_full_target_refuses_writes_and_deletes_make_room() {
    // A disk of its own, small enough to fill.
    let up = Up::start_on_a_small_disk(400 << 20);
    let fill = |name: &str| -> std::io::Result<()> {
        let mut file = File::create(up.mount().join(name))?;
        let block = vec![1; 1 << 20];
        for _ in 0..500 {
            file.write_all(&block)?;
        }
        file.sync_all()
    };
    let error = fill("too-big").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    fs::remove_file(up.mount().join("too-big")).unwrap();
    // Deleting goes on in the background.
    let mut tries = 0;
    while let Err(error) = write_synced(&up.mount().join("fits"), 50 << 20, tries + 2) {
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        tries += 1;
        assert!(tries < 100, "the room does not come back");
        std::thread::sleep(Duration::from_millis(300));
    }
    // Each try writes a byte of its own, the file before them ones: what is wrong tells where it is from.
    let back = runs(&contents(&up.mount().join("fits")));
    assert_eq!(back, [(tries + 2, 0..50 << 20)], "after {tries} tries that failed");
}

/// Which byte stands where.
fn runs(bytes: &[u8]) -> Vec<(u8, Range<usize>)> {
    let mut end = 0;
    let run = |run: &[u8]| {
        let start = end;
        end += run.len();
        (run[0], start..end)
    };
    bytes.chunk_by(|one, next| one == next).map(run).collect()
}

fn write_synced(path: &Path, len: usize, byte: u8) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![byte; len])?;
    file.sync_all()
}

#[test]
fn room_of_deleted_files_comes_back() {
    let up = Up::start_on_a_small_disk(400 << 20);
    // Four times what there is room for.
    for nth in 0..20 {
        let path = up.mount().join("file");
        let mut tries = 0;
        while let Err(error) = write_synced(&path, 80 << 20, 7) {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            tries += 1;
            assert!(tries < 100, "round {nth}: the room does not come back");
            std::thread::sleep(Duration::from_millis(300));
        }
        fs::remove_file(&path).unwrap();
    }
}

/// A server of all roles that says to these what it has to say; its address.
fn start_saying_to(
    (out, errors): (Stdio, Stdio),
    directory: &Path,
    further: &[&str],
) -> (Process, String) {
    let (address, data) = (format!("127.0.0.1:{}", free_port()), directory.join("data"));
    fs::create_dir(&data).unwrap();
    let data = data.display().to_string();
    let all = ["server", "--listen", &address, "--roles", "manager,meta,storage", "--data", &data];
    let arguments: Vec<String> = all.iter().chain(further).map(|word| word.to_string()).collect();
    let mut server = Process::start_saying_to(&arguments, out, errors);
    server.wait_until("a server listens", || TcpStream::connect(&address).is_ok());
    until_served(&address);
    (server, address)
}

fn until_served(address: &str) {
    let status = || run(["status", "--cluster", address]).status.code();
    eventually(WAIT, "a server serves", || status().is_some_and(|code| code < 2));
}

/// It ended at its first line.
#[test]
fn a_server_serves_whose_log_has_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let (mut server, _) = start_saying_to((full(), full()), directory.path(), &[]);
    server.stop();
}

/// Whatever warned of something panicked from then on, the task that takes new connections as well.
#[test]
fn a_server_goes_on_when_nobody_reads_its_log_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let metrics = format!("127.0.0.1:{}", free_port());
    let (log, errors) = std::io::pipe().unwrap();
    let says = (Stdio::null(), Stdio::from(errors));
    let (_server, address) = start_saying_to(says, directory.path(), &["--metrics", &metrics]);
    drop(log);
    // Of what is no frame it warns.
    let mut stranger = TcpStream::connect(&address).unwrap();
    let _hung_up = stranger.write_all(&[b'x'; 1000]);
    eventually(WAIT, "a line is lost", || lines_lost(&metrics) > 0);
    until_served(&address);
}

/// Lines of its log that a server says that it has lost.
fn lines_lost(metrics: &str) -> u64 {
    counted(metrics, |line| line.starts_with("strake_log_lines_lost_total"))
}

/// Leaves no room in a pipe, and whoever writes there next to wait.
fn fill(mut pipe: &PipeWriter) {
    rustix::io::ioctl_fionbio(pipe, true).unwrap();
    while pipe.write(&[b'\n'; 4096]).is_ok_and(|written| written > 0) {}
    rustix::io::ioctl_fionbio(pipe, false).unwrap();
}

/// Calls as a member of another cluster, of which a server warns in a line of 4 KiB.
fn call_as_a_stranger(address: &str) {
    let hello = Hello::new(&"x".repeat(4000), "stranger", false);
    let frame = Draft::message(&hello).unwrap().seal(FrameKind::Hello, ServiceClass::None, 0);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&frame.head).unwrap();
    // It is refused, and hung up on.
    let _refused = stream.read_to_end(&mut Vec::new());
}

/// Has a server say more than there is room for.
fn until_it_loses_lines(address: &str, metrics: &str) {
    let before = lines_lost(metrics);
    eventually(WAIT, "lines are lost", || {
        (0..50).for_each(|_| call_as_a_stranger(address));
        lines_lost(metrics) > before
    });
}

/// At the next line all of its threads stood still until somebody read, and no signal but SIGKILL ended it.
#[test]
fn a_server_serves_and_ends_while_nobody_reads_its_log_and_says_later_what_it_has_lost() {
    let directory = tempfile::tempdir().unwrap();
    let metrics = format!("127.0.0.1:{}", free_port());
    let (log, errors) = std::io::pipe().unwrap();
    fill(&errors);
    let says = (Stdio::from(errors.try_clone().unwrap()), Stdio::from(errors));
    let (mut server, address) = start_saying_to(says, directory.path(), &["--metrics", &metrics]);
    until_it_loses_lines(&address, &metrics);
    until_served(&address);
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let is_told = lines.any(|line| line.contains(" lines of this log were lost: "));
        (is_told, lines)
    });
    eventually(WAIT, "it tells of lost lines, or ends", || {
        call_as_a_stranger(&address);
        reader.is_finished()
    });
    let (is_told, _unread) = reader.join().unwrap();
    assert!(is_told);
    until_it_loses_lines(&address, &metrics);
    signal(server.pid(), "TERM");
    assert_eq!(server.exit_code(), Some(0));
}
