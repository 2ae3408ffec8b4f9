use super::*;
use crate::task;
use std::sync::atomic::{AtomicU64, Ordering};

fn run(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(future);
}

fn counting(count: &Arc<AtomicU64>) -> impl Future<Output = ()> + Send + use<> {
    let count = count.clone();
    async move {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn what_a_process_has_spawned_pauses_and_dies_with_it() {
    run(async {
        let process = Process::new(|| Duration::from_millis(3));
        let count = Arc::new(AtomicU64::new(0));
        let counter = counting(&count);
        process.spawn(async move { drop(task::spawn(counter)) }).await.unwrap();
        let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
        sleep(105).await;
        assert_eq!(count.load(Ordering::Relaxed), 10);
        process.pause();
        sleep(100).await;
        assert_eq!(count.load(Ordering::Relaxed), 10, "nothing runs while it is paused");
        process.resume();
        sleep(15).await;
        let before = count.load(Ordering::Relaxed);
        assert!(before > 10);
        process.kill();
        sleep(100).await;
        assert_eq!(count.load(Ordering::Relaxed), before);
        assert!(process.spawn(async {}).await.is_err(), "a dead process begins nothing");
    });
}

#[test]
fn work_on_a_disk_takes_its_time_and_no_thread() {
    run(async {
        let process = Process::new(|| Duration::from_millis(7));
        let began = tokio::time::Instant::now();
        let here = std::thread::current().id();
        let there = async { task::blocking(|| std::thread::current().id()).await.unwrap() };
        assert_eq!(process.spawn(there).await.unwrap(), here);
        assert!(began.elapsed() >= Duration::from_millis(7));
    });
}

#[test]
fn what_is_random_follows_from_the_seed_of_the_thread() {
    let draw = |seed| {
        std::thread::spawn(move || {
            entropy::seed(seed);
            let hash = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);
            let number = crate::random::SystemRandom.number().unwrap();
            (hash, number)
        })
        .join()
        .unwrap()
    };
    assert_eq!(draw(5), draw(5));
    assert_ne!(draw(5), draw(6));
    let plain = || crate::random::SystemRandom.number().unwrap();
    assert_ne!(plain(), plain(), "a thread without a seed has the machine's");
}

#[test]
fn what_is_broken_is_broken_in_its_thread_only() {
    sabotage::begin(Some("a rule"));
    assert!(sabotage::is_broken("a rule") && !sabotage::is_broken("another"));
    let elsewhere = std::thread::spawn(|| sabotage::is_broken("a rule")).join().unwrap();
    assert!(!elsewhere);
    sabotage::begin(None);
    assert!(!sabotage::is_broken("a rule"));
}

#[test]
fn what_happens_is_counted_in_its_thread_only() {
    crate::count_case("a case");
    crate::count_case("a case");
    assert!(std::thread::spawn(cases::take).join().unwrap().is_empty());
    assert_eq!(cases::take().into_iter().collect::<Vec<_>>(), [("a case", 2)]);
    assert!(cases::take().is_empty());
}
