//! What the metadata server counts as open.

use super::*;

/// A second copy of a report once took back the open of whoever had opened the file meanwhile.
#[tokio::test]
async fn a_report_of_closed_files_whose_answer_is_lost_counts_once() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    volume.release(&file).await.unwrap();
    fake.take_log();
    fake.lose_answer("renew closed");
    volume.tick_session(1).await;
    volume.tick_session(2).await;
    let log = fake.take_log();
    assert!(log.iter().filter(|line| line.starts_with("renew closed=[")).count() > 1, "{log:?}");
    assert_eq!(fake.opens(file.ino()), 0);
}

/// What is unsent goes to where the file was when it was opened: until then it counts as open.
#[tokio::test]
async fn a_file_is_open_as_long_as_something_is_unsent() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    let ino = file.ino();
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    drop(file);
    volume.tick_session(1).await;
    assert_eq!(fake.opens(ino), 1);
    volume.sync_all().await.unwrap();
    for tick in 2..500 {
        volume.tick_files();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        volume.tick_session(tick).await;
        if fake.opens(ino) == 0 {
            return;
        }
    }
    panic!("the file stays open");
}

#[tokio::test]
async fn who_opens_a_file_learns_where_it_lies_now() {
    let (fake, volume) = cluster().await;
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.flush(&file).await.unwrap();
    let width = || file.state.core().placement().unwrap().layout().width;
    assert!(width() > 1);
    fake.lay_elsewhere(file.ino());
    let flags = OpenFlags::READ_WRITE;
    volume.open(&Credentials::root(), file.ino(), flags).await.unwrap();
    assert_eq!(width(), 1);
}
