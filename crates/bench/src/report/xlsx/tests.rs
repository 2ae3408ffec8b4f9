use super::*;
use crate::report::fixture::{many_records, study, without_charts};
use crate::result::{Figure, Unit};
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use zip::ZipArchive;

/// A file of a workbook.
fn part(book: &[u8], name: &str) -> String {
    let mut archive = ZipArchive::new(Cursor::new(book)).unwrap();
    let mut text = String::new();
    archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
    text
}

/// What the cells of a sheet show, by their names: "B3".
fn cells(book: &[u8], sheet: usize) -> BTreeMap<String, String> {
    let shared = part(book, "xl/sharedStrings.xml");
    let texts: Vec<&str> = shared
        .split("<si><t")
        .skip(1)
        .map(|text| text.split_once('>').unwrap().1.split_once("</t>").unwrap().0)
        .collect();
    let sheet = part(book, &format!("xl/worksheets/sheet{sheet}.xml"));
    let mut cells = BTreeMap::new();
    for cell in sheet.split("<c r=\"").skip(1) {
        let (name, rest) = cell.split_once('"').unwrap();
        let Some((_, value)) = rest.split_once("<v>") else { continue };
        let value = value.split_once("</v>").unwrap().0;
        let is_text = rest.split_once('>').unwrap().0.contains("t=\"s\"");
        let value = if is_text { texts[value.parse::<usize>().unwrap()] } else { value };
        cells.insert(name.to_owned(), value.to_owned());
    }
    cells
}

#[test]
fn record_sizes_go_across_and_file_sizes_down() {
    let book = workbook(&many_records()).unwrap();
    let names = part(&book, "xl/workbook.xml");
    for name in ["Report", "iozone write", "iozone read", "Samples"] {
        assert!(names.contains(&format!("<sheet name=\"{name}\"")), "{names}");
    }
    let write = cells(&book, 2);
    assert_eq!(write["A1"], "strake, MB/s");
    assert_eq!(write["A2"], "size (KiB) down, record (KiB) across");
    let head = ["B2", "C2", "D2", "E2"].map(|name| write[name].as_str());
    assert_eq!(head, ["4", "64", "256", "1024"]);
    let sizes = ["A3", "A4", "A10"].map(|name| write[name].as_str());
    assert_eq!(sizes, ["2048", "4096", "262144"]);
    let one: f64 = write["E3"].parse().unwrap();
    assert!((one - 11.8).abs() < 0.01, "{one}");
    let half: f64 = write["B3"].parse().unwrap();
    assert!((half / one - 0.5).abs() < 0.01, "{half}");
    assert_eq!(write["A13"], "glusterfs-10, MB/s");
}

#[test]
fn all_samples_are_there() {
    let report = study();
    let book = workbook(&report).unwrap();
    let samples = cells(&book, 4);
    assert_eq!((samples["A1"].as_str(), samples["D1"].as_str()), ("test", "size"));
    let rows = samples.keys().filter(|name| name.starts_with('A') && name.len() < 5).count();
    assert!(rows > report.figures.len(), "{rows}");
    assert_eq!(samples["B2"], "strake");
    let first: f64 = samples["N2"].parse().unwrap();
    assert_eq!(first, report.figures[0].samples[0]);
    assert!(cells(&book, 1)["B3"].starts_with("strake bench study 1"));
}

#[test]
fn tests_without_sizes_have_sheets_too() {
    let book = workbook(&without_charts()).unwrap();
    let sheet = cells(&book, 4);
    assert_eq!((sheet["A1"].as_str(), sheet["A2"].as_str()), ("strake, µs", "threads"));
    let value: f64 = sheet["B3"].parse().unwrap();
    assert!(sheet["A3"] == "4" && (value - 730.0).abs() < 1e-9, "{value}");
}

/// fio's operations per second have the same test and parameters as its bytes per second, whose place
/// they were looked for in: they were in no sheet.
#[test]
fn every_unit_of_a_test_has_a_grid_of_its_own() {
    let mut report = without_charts();
    let is_one = |figure: &&Figure| figure.test == "fio/random read" && figure.side == "strake";
    let mut bytes = report.figures.iter().find(is_one).unwrap().clone();
    (bytes.unit, bytes.samples) = (Unit::BytesPerSecond, vec![168e6]);
    report.figures.insert(0, bytes);
    let book = workbook(&report).unwrap();
    let sheet = cells(&book, 2);
    let titles = ["A1", "A6", "A11"].map(|name| sheet[name].as_str());
    assert_eq!(titles, ["strake, MB/s", "strake, 1/s", "glusterfs-10, 1/s"]);
    let values = ["B3", "B8"].map(|name| sheet[name].parse::<f64>().unwrap());
    assert!((values[0] - 168.0).abs() < 1e-9 && (values[1] - 41_000.0).abs() < 1e-6, "{values:?}");
}

#[test]
fn names_that_programs_refuse_are_changed() {
    let mut taken = vec!["report".to_owned()];
    let mut name = |test: &str| sheet_name(test, &mut taken);
    assert_eq!(name("iozone/write -ce"), "iozone write -ce");
    assert_eq!(name("Report"), "Report 2");
    assert_eq!(name("IOZONE/write -ce"), "IOZONE write -ce 2");
    assert_eq!(name("[]:*?/\\'"), "test");
    assert_eq!(name("history"), "history 2");
    let long = "ä".repeat(40);
    assert_eq!(name(&long).chars().count(), 31);
    assert!(name(&long).ends_with(" 2"));
    assert_eq!(name(&"\u{1F600}".repeat(20)).encode_utf16().count(), 30);
    let mut report = study();
    for (at, figure) in report.figures.iter_mut().enumerate() {
        figure.test = format!("=1+1/{}", "[x]".repeat(at % 20));
        figure.side = format!("=HYPERLINK({at})");
    }
    report.notes.push("x".repeat(50_000));
    assert!(workbook(&report).is_ok());
}
