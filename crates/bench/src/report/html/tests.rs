use super::page;
use crate::compare::{compare, page as comparison};
use crate::report::fixture::{many_records, slower, study, without_charts};
use crate::result::{Origin, Program};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a browser may take. Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(90);
/// Names of the browser; Debian has the last in a package of its own, which is the smallest.
const BROWSERS: &[&str] =
    &["chromium", "chromium-shell", "google-chrome", "chromium-headless-shell"];

#[test]
fn the_page_is_whole_and_nothing_of_a_report_becomes_markup() {
    let mut report = study();
    let evil = "</style><script>alert(1)</script><img src=x onerror=\"alert('x')\">";
    report.title = evil.into();
    report.notes.push(evil.into());
    report.machine.processor = evil.into();
    report.charts[0].title = evil.into();
    for figure in &mut report.figures {
        if figure.side == "strake" {
            figure.side = evil.into();
            figure.parameters.insert(evil.into(), 1.0);
        }
    }
    report.sides[0].name = evil.into();
    let page = page(&report);
    for tag in ["<script", "<img", "</style><"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(page.contains("&lt;script&gt;"));
    for outside in ["src=", "href=", "url(", "@import", "http://", "https://"] {
        assert!(!page.replace("onerror", "").replace("src=x", "").contains(outside), "{outside}");
    }
}

/// Of a side the page said "fuse.glusterfs", and of fio nothing at all.
#[test]
fn the_page_says_which_programs_there_were_and_how_they_were_run() {
    let program = |name: &str, version: &str, command: &str| {
        let [name, version, command] = [name, version, command].map(str::to_owned);
        Program { name, version, command }
    };
    let mut report = study();
    report.programs = vec![program("glusterfs", "10.3", ""), program("fio", "3.33", "fio --x=<1>")];
    let shown = page(&report);
    for words in ["<dt>glusterfs</dt><dd>version 10.3</dd>", "version 3.33", "fio --x=&lt;1&gt;"] {
        assert!(shown.contains(words), "{words}");
    }
    let mut newer = report.clone();
    newer.programs[0].version = "11.1".into();
    assert_eq!(compare(&report, &newer).differences, ["glusterfs: 10.3 | 11.1"]);
}

#[test]
fn the_page_has_what_a_reader_needs() {
    let page = page(&study());
    let words = [
        "Study 1: two servers",
        "strake bench study 1 --on strake=/mnt/strake /mnt/&lt;gluster&gt; ext4=/srv",
        "AMD EPYC 7B13, 2 cores",
        "4 GiB",
        "Linux 6.1.0-28",
        "2026-11-21 14:30 UTC",
        "PVFS2 2.8.2 (published)",
        "TCP stream (limit)",
        "256 MiB",
        "MB/s, logarithmic",
        "Caches of the servers could not be dropped",
        "the mean without the largest and the smallest",
    ];
    for word in words {
        assert!(page.contains(word), "{word}");
    }
    assert_eq!(page.matches("<svg class=\"plot wide\"").count(), 4);
    assert_eq!(page.matches("<svg class=\"plot narrow\"").count(), 4);
    // The writer is asked, not the reader: what is opened is closed.
    for tag in ["svg", "table", "tr", "td", "th", "g", "section", "div", "p", "text"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_side_alone_is_shown_by_its_share_of_the_limit_and_has_no_ratio_to_itself() {
    let mut report = study();
    report.sides.truncate(1);
    report.figures.retain(|figure| figure.side == "strake" || figure.origin == Origin::Limit);
    let page = page(&report);
    let (_, glance) = page.split_once("At a glance").unwrap();
    let (glance, _) = glance.split_once("</section>").unwrap();
    assert!(!glance.contains("× 1") && glance.contains("of limit"), "{glance}");
}

/// Sides that were measured where the first one was not were said to be as fast as it.
#[test]
fn only_the_first_side_is_as_fast_as_itself() {
    let mut report = study();
    let of_first = |test: &str, side: &str| test == "iozone/read" && side == "strake";
    report.figures.retain(|figure| !of_first(&figure.test, &figure.side));
    let page = page(&report);
    let row = |test: &str| {
        let (_, row) = page.split_once(&format!(">{test}</th>")).unwrap();
        row.split_once("</tr>").unwrap().0
    };
    let (read, write) = (row("iozone/read"), row("iozone/write"));
    assert!(!read.contains('×') && read.contains("of limit"), "{read}");
    assert_eq!(read.matches('–').count(), 3, "{read}");
    assert_eq!((write.matches('×').count(), write.matches("× 1<").count()), (3, 1), "{write}");
}

/// A browser on this machine. Where it must be there (in CI), a missing one is a failure.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = BROWSERS.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    let found = found.into_iter().find(|path| path.is_file());
    if found.is_none() {
        let needed = std::env::var_os("STRAKE_TESTS_NEED_CHROMIUM").is_some();
        assert!(!needed, "no chromium: install Debian's chromium-headless-shell");
        println!("no chromium here (Debian package chromium-headless-shell): nothing is rendered");
    }
    found
}

/// A browser that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The browser's own processes are in its group.
        let group = rustix::process::Pid::from_child(&self.0);
        let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _status = self.0.wait();
    }
}

/// Runs the browser on a file; what it prints.
fn render(browser: &Path, file: &Path, arguments: &[&str]) -> String {
    let directory = file.parent().unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--hide-scrollbars", "--no-first-run", "--disable-background-networking"]);
    command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    command.args(arguments).arg(file).process_group(0);
    let printed = directory.join("printed");
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&printed).unwrap());
    command.stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let began = Instant::now();
    while running.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LIMIT, "the browser does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = String::new();
    std::fs::File::open(printed).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// The pixels of a page, as red, green and blue.
fn pixels(browser: &Path, page: &str, width: u32, height: u32, dark: bool) -> Vec<[u8; 3]> {
    let directory = tempfile::tempdir().unwrap();
    let (file, picture) = (directory.path().join("page.html"), directory.path().join("page.png"));
    std::fs::write(&file, page).unwrap();
    let (to, size) =
        (format!("--screenshot={}", picture.display()), format!("--window-size={width},{height}"));
    let scheme = format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 });
    render(browser, &file, &[&to, &size, &scheme]);
    let png = std::io::BufReader::new(std::fs::File::open(&picture).unwrap());
    let mut png = png::Decoder::new(png).read_info().unwrap();
    let mut bytes = vec![0; png.output_buffer_size().unwrap()];
    let info = png.next_frame(&mut bytes).unwrap();
    assert_eq!((info.width, info.height), (width, height));
    let channels = info.color_type.samples();
    bytes.chunks(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}

#[test]
fn a_browser_draws_the_page_in_light_and_dark() {
    let Some(browser) = browser() else { return };
    let drawn = |page: &str, dark| pixels(&browser, page, 1280, 1500, dark);
    let (study, comparison) = (page(&study()), compared("before", "after"));
    for (pixels, background, line) in [
        (drawn(&study, false), [0xff, 0xff, 0xff], [0x00, 0x67, 0xa6]),
        (drawn(&study, true), [0x14, 0x17, 0x1b], [0x58, 0xb0, 0xf0]),
        (drawn(&comparison, false), [0xff, 0xff, 0xff], [0x5a, 0x64, 0x70]),
        (drawn(&comparison, true), [0x14, 0x17, 0x1b], [0xa0, 0xa9, 0xb4]),
    ] {
        let count = |wanted: [u8; 3]| pixels.iter().filter(|pixel| **pixel == wanted).count();
        let share = count(background) as f64 / pixels.len() as f64;
        assert!((0.5..0.99).contains(&share), "the background is {share} of the page");
        assert!(count(line) > 500, "the line has {} pixels", count(line));
    }
}

/// What the page looks like from inside: how wide it is, how many plots are shown, and which texts of
/// a plot lie over each other. The page is in a frame, because a browser's window has a least width.
const LOOK: &str = r#"<script>
addEventListener("load", () => {
  const seen = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, over = [];
    const plots = [...page.querySelectorAll("svg.plot")].filter(svg => svg.getBoundingClientRect().height > 0);
    for (const svg of plots) {
      const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
      texts.forEach(([one, a], at) => texts.slice(at + 1).forEach(([other, b]) => {
        const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (x > 1 && y > 4) over.push(one + " / " + other);
      }));
      const outside = texts.filter(([, a]) => a.right > root.clientWidth + 1 || a.left < -1);
      outside.forEach(([text]) => over.push(text + " / edge"));
    }
    return { width: root.clientWidth, needs: root.scrollWidth, plots: plots.length, over };
  });
  document.title = JSON.stringify(seen);
});
</script>"#;

/// What [`LOOK`] sees of a page at two widths.
fn look(browser: &Path, page: &str) -> serde_json::Value {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("frames.html");
    let inside = page.replace('&', "&amp;").replace('"', "&quot;");
    let frames = [360, 1200].map(|width| {
        format!("<iframe width=\"{width}\" height=\"900\" style=\"border:0\" srcdoc=\"{inside}\"></iframe>")
    });
    // Without its character set a browser guesses it from however much it has read first.
    let head = "<!doctype html><meta charset=\"utf-8\"><title>-</title>";
    let page = format!("{head}{LOOK}{}", frames.concat());
    std::fs::write(&file, page).unwrap();
    let dom = render(browser, &file, &["--dump-dom", "--window-size=1280,1000"]);
    let title = dom.split_once("<title>").unwrap().1.split_once("</title>").unwrap().0;
    serde_json::from_str(&title.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
        .unwrap()
}

#[test]
fn a_phone_does_not_scroll_sideways_and_no_text_lies_over_another() {
    let Some(browser) = browser() else { return };
    let mut long = study();
    long.sides[0].name = "a-name-".repeat(30);
    long.sides[0].directory = "/directory".repeat(30);
    let name = long.sides[0].name.clone();
    long.figures.iter_mut().filter(|f| f.side == "strake").for_each(|f| f.side = name.clone());
    let mut pages: Vec<(String, usize)> =
        [(study(), 4), (without_charts(), 5), (many_records(), 16), (long, 4)]
            .map(|(report, plots)| (page(&report), plots))
            .into();
    pages.push((compared("before", "after"), 1));
    pages.push((compared(&"a-name-".repeat(30), "after"), 1));
    for (page, plots) in pages {
        let seen = look(&browser, &page);
        for (at, width) in [360, 1200].into_iter().enumerate() {
            let seen = &seen[at];
            assert_eq!(seen["width"], width, "{seen}");
            assert_eq!(seen["needs"], width, "the page scrolls sideways: {seen}");
            assert_eq!(seen["plots"], plots, "{seen}");
            assert_eq!(seen["over"].as_array().unwrap().len(), 0, "{seen}");
        }
    }
}

/// The page of a comparison.
fn compared(before: &str, after: &str) -> String {
    let (first, second) = (study(), slower());
    let (a, b) = (
        comparison::Party { name: before, report: &first },
        comparison::Party { name: after, report: &second },
    );
    comparison::page(&a, &b, &compare(&first, &second))
}

/// For those who want to look themselves: `STRAKE_PAGES=DIR cargo test -p strake-bench pages`.
#[test]
fn pages_can_be_kept() {
    let Some(directory) = std::env::var_os("STRAKE_PAGES").map(PathBuf::from) else { return };
    for (name, report) in
        [("study", study()), ("without-charts", without_charts()), ("records", many_records())]
    {
        std::fs::write(directory.join(format!("{name}.html")), page(&report)).unwrap();
    }
    let page = compared("before", "after");
    std::fs::write(directory.join("comparison.html"), page).unwrap();
}
