use super::fixture::study;
use super::*;
use crate::result::{Origin, Side};
use crate::statistics::Verdict;

#[test]
fn the_table_puts_limits_and_published_figures_beside_what_was_measured() {
    let table = table::of(&study(), |figure| figure.test.starts_with("iozone/"));
    let names: Vec<_> = table.columns.iter().map(table::Column::title).collect();
    assert_eq!(
        names,
        [
            "strake",
            "glusterfs-10",
            "ext4",
            "TCP stream",
            "PVFS2 2.8.2 (published)",
            "GlusterFS 3.2.7 (published)"
        ]
    );
    assert_eq!(table.parameters, ["size", "record"]);
    assert_eq!(table.rows.len(), 16, "no row of a limit or of a study alone");
    let last = &table.rows[7];
    assert_eq!((last.test.as_str(), last.parameters["size"]), ("iozone/write", 268_435_456.0));
    assert!(last.cells.iter().all(Option::is_some));
    assert_eq!(last.limit, Some(11.95e6));
    let strake = last.cells[0].as_ref().unwrap();
    assert!((strake.of_limit.unwrap() - 11.93 / 11.95).abs() < 0.001);
    assert_eq!(strake.to_first, None);
    let gluster = last.cells[1].as_ref().unwrap();
    assert_eq!(gluster.verdict, Some(Verdict::Worse));
    assert!((gluster.to_first.unwrap().value - 11.72 / 11.93).abs() < 0.005);
    assert_eq!(last.cells[4].as_ref().unwrap().summary.value, 10.70e6);
    assert_eq!(last.cells[4].as_ref().unwrap().of_limit, None, "another machine's figure");
}

#[test]
fn a_published_figure_without_a_measured_one_has_a_row_of_its_own() {
    let mut report = study();
    report.figures.retain(|figure| figure.origin == Origin::Published);
    let table = table::of(&report, |_| true);
    assert_eq!(table.columns.len(), 2);
    assert_eq!(table.rows.len(), 16);
}

#[test]
fn a_limit_by_number_of_servers_stands_beside_that_number_only() {
    let mut report = study();
    let index = report.figures.iter().position(|f| f.origin == Origin::Limit).unwrap();
    report.figures[index].parameters.insert("size".into(), 2_097_152.0);
    let limited: Vec<_> = table::of(&report, |_| true).rows;
    let with_limit: Vec<_> = limited.iter().filter(|row| row.limit.is_some()).collect();
    assert_eq!(with_limit.len(), 2);
    assert!(with_limit.iter().all(|row| row.parameters["size"] == 2_097_152.0));
}

#[test]
fn a_report_survives_being_saved() {
    let report = study();
    let text = saved::to_json(&report).unwrap();
    assert!(text.starts_with("{\n  \"strake_bench\": 1,"));
    assert_eq!(saved::from_json(text.as_bytes()).unwrap(), report);
}

/// A saved report of this release's first form must stay readable: do not make it anew.
#[test]
fn the_fixture_of_version_1_is_read() {
    let report = saved::from_json(include_bytes!("saved/fixture-v1.json")).unwrap();
    assert_eq!(report.title, "A fixture");
    assert_eq!(report.figures[0].samples, [11_950_000.0, 11_940_000.5]);
    assert_eq!(report.figures[0].parameters["size"], 2_097_152.0);
}

#[test]
fn what_is_no_report_is_refused_with_its_reason() {
    let text = saved::to_json(&study()).unwrap();
    let refused = |text: &str| saved::from_json(text.as_bytes()).unwrap_err().to_string();
    assert!(refused("").contains("no report"));
    assert!(refused("hello").contains("no report"));
    assert!(refused("{\"title\": \"x\"}").contains("no report"));
    assert!(refused("[1, 2]").contains("no report"));
    assert!(refused(&text[..text.len() / 2]).contains("damaged"));
    assert!(refused(&text.replace("\"samples\"", "\"simples\"")).contains("damaged"));
    let newer = refused(&text.replacen("\"strake_bench\": 1", "\"strake_bench\": 2", 1));
    assert!(newer.contains("version 2") && newer.contains("newer strake"), "{newer}");
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let broken = |change: fn(&mut Report)| {
        let mut report = study();
        change(&mut report);
        check(&report).unwrap_err().to_string()
    };
    assert!(broken(|r| r.figures[0].samples.clear()).contains("no samples"));
    assert!(broken(|r| r.figures[0].samples[3] = f64::NAN).contains("NaN"));
    assert!(broken(|r| r.figures[0].samples[3] = -1.0).contains("holds -1e0"));
    assert!(broken(|r| r.figures[0].samples[3] = 1e300).contains("cannot have been measured"));
    assert!(
        broken(|r| *r.figures[0].parameters.get_mut("size").unwrap() = 1e-300).contains("1e-300")
    );
    assert!(broken(|r| r.figures.push(r.figures[0].clone())).contains("twice"));
    let twice = broken(|r| {
        let Side { directory, file_system, .. } = r.sides[0].clone();
        r.sides.push(Side { name: "ext4".into(), directory, file_system });
    });
    assert!(twice.contains("two sides are called \"ext4\""), "{twice}");
    assert_eq!(check(&study()), Ok(()));
}

#[test]
fn csv_has_a_line_for_each_figure_and_quotes_what_needs_it() {
    let mut report = study();
    report.figures[0].side = "a, \"b\"".into();
    let text = csv::write(&report);
    let lines: Vec<_> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 1 + report.figures.len());
    assert_eq!(
        lines[0],
        "test,side,origin,size,record,unit,value,rule,count,deviation,minimum,maximum,spread,samples"
    );
    assert!(lines[1].starts_with("iozone/write,\"a, \"\"b\"\"\",measured,2097152,1048576,B/s,"));
    let published = lines.last().unwrap();
    let expected = "iozone/read,GlusterFS 3.2.7,published,268435456,,B/s,10400000,trimmed_mean,1,,10400000,10400000,,10400000";
    assert_eq!(*published, expected);
}

#[test]
fn figures_at_the_ends_of_what_is_possible_are_shown() {
    let extremes = [0.0, 1e-30, 1.0, 1e30];
    for one in extremes {
        for other in extremes {
            let mut report = study();
            for figure in report.figures.iter_mut().step_by(2) {
                figure.samples.fill(one);
                figure.samples[0] = other;
                figure.parameters.values_mut().for_each(|value| *value *= one.min(1e20));
            }
            let mut seen = HashSet::new();
            report.figures.retain(|figure| seen.insert(format!("{:?}", identity(figure))));
            assert_eq!(check(&report), Ok(()), "{one} {other}");
            let page = html::page(&report);
            assert!(!page.contains("NaN") && !page.contains("inf"), "{one} {other}");
            assert!(xlsx::workbook(&report).is_ok());
            assert!(!crate::compare::compare(&report, &study()).rows.is_empty());
        }
    }
}
