use super::*;
use crate::report::fixture::study;
use crate::report::table;

fn plots(report: &Report, chart: usize) -> Vec<Plot> {
    let chart = &report.charts[chart];
    let columns = table::columns(report);
    let table = table::of(report, |f| f.test == chart.test || f.origin == Origin::Limit);
    of(report, chart, &table, &columns)
}

#[test]
fn measured_sides_limits_and_studies_are_drawn_together() {
    let plots = plots(&study(), 0);
    assert_eq!(plots.len(), 2, "all of it, and what is near the limit");
    assert_eq!(plots[1].caption, "Up to the limit; beyond it: ext4");
    assert_eq!((plots[0].series.len(), plots[1].series.len()), (6, 5));
    let labels: Vec<_> = plots[0].series.iter().map(|s| s.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "strake",
            "glusterfs-10",
            "ext4",
            "TCP stream",
            "PVFS2 2.8.2 (published)",
            "GlusterFS 3.2.7 (published)"
        ]
    );
    assert_eq!(plots[0].positions().len(), 8);
    assert!(plots[0].series.iter().all(|s| s.origin == Origin::Limit || s.points.len() == 8));
    assert_eq!(plots[0].series[3].points[0].across, None);
}

/// The plot ended at what the links carried, and the disks, which were the limit, lay on its axis.
#[test]
fn of_several_limits_the_least_ends_the_plot() {
    let mut report = study();
    let limit = report.figures.iter().find(|figure| figure.origin == Origin::Limit).cloned();
    let links = Figure { side: "links".into(), samples: vec![2000e6], ..limit.unwrap() };
    report.figures.push(links);
    let closer = plots(&report, 0).pop().unwrap();
    let beyond = closer.ceiling.unwrap() / 11.95e6;
    assert!((beyond - ABOVE_LIMIT).abs() < 1e-9, "{beyond}");
    assert_eq!(closer.caption, "Up to the limit; beyond it: ext4, links");
    // Where nothing is beyond the limit, one plot shows all.
    report.figures.retain(|figure| ["glusterfs-10", "links"].contains(&figure.side.as_str()));
    assert_eq!(plots(&report, 0).len(), 1);
}

#[test]
fn few_further_parameters_are_lines_and_many_are_plots() {
    let mut report = study();
    report.figures.retain(|figure| figure.side != "ext4" && figure.side != "strake");
    let copies = |report: &mut Report, records: &[f64]| {
        let measured = report.figures.iter().filter(|f| f.origin == Origin::Measured);
        let measured: Vec<_> = measured.cloned().collect();
        for record in records {
            report.figures.extend(measured.iter().cloned().map(|mut figure| {
                figure.parameters.insert("record".into(), *record);
                figure
            }));
        }
    };
    copies(&mut report, &[4096.0]);
    let two = plots(&report, 0);
    assert_eq!(two[0].caption, "");
    assert!(two[0].series.iter().any(|s| s.label == "glusterfs-10, record 4 KiB"));
    let of_side = two[0].series.iter().filter(|s| s.label.starts_with("glusterfs-10"));
    let (colours, marks): (Vec<_>, Vec<_>) =
        of_side.map(|s| (s.look.colour, s.look.mark % 6)).unzip();
    assert!(colours[0] == colours[1] && marks[0] != marks[1], "{colours:?} {marks:?}");
    copies(&mut report, &[8192.0, 16384.0, 32768.0, 65536.0, 131_072.0]);
    let many: Vec<_> =
        plots(&report, 0).into_iter().filter(|plot| plot.ceiling.is_none()).collect();
    assert_eq!(many.len(), 7);
    assert!(many.iter().all(|plot| plot.series.len() == 4), "the study and the limit are in each");
    let captions: Vec<_> = many[..3].iter().map(|plot| plot.caption.as_str()).collect();
    assert_eq!(captions, ["record 1 MiB", "record 4 KiB", "record 8 KiB"]);
}
