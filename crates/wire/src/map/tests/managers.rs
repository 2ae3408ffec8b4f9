use super::*;
use crate::caller::LocalServices;
use crate::message::manager::{
    Heartbeat, Leader, ManagerAnswer, ManagerOp, ManagerReply, ManagerRequest, MapAnswer,
};
use async_trait::async_trait;
use parking_lot::Mutex as PlainMutex;
use std::collections::HashMap;

/// What a manager does with a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// It leads.
    Answers,
    /// It names this server.
    Names(u32),
    /// The same, and it does not reach the metadata store.
    CutOff(u32),
    /// It cannot be reached.
    Refuses,
    /// It will not do it.
    Denies,
    /// It never answers.
    Hangs,
}

/// A manager whose behaviour a test changes.
struct Puppet {
    id: u32,
    does: PlainMutex<Does>,
    /// How often each kind of question was asked.
    asked: PlainMutex<HashMap<&'static str, u32>>,
}

#[async_trait]
impl ManagerService for Puppet {
    async fn call(&self, request: ManagerRequest) -> Result<ManagerReply> {
        let what = match request.op {
            Some(ManagerOp::GetMap(_)) => "map",
            Some(ManagerOp::Heartbeat(_)) => "beat",
            _ => "other",
        };
        *self.asked.lock().entry(what).or_default() += 1;
        let does = *self.does.lock();
        let answer = match does {
            Does::Answers if what == "map" => ManagerAnswer::Map(MapAnswer::of(&of(2))),
            Does::Answers => ManagerAnswer::Epoch(u64::from(self.id)),
            Does::Names(server) | Does::CutOff(server) => {
                let why = if does == Does::Names(server) { "" } else { "no database" };
                let (address, cut_off) = (format!("h{server}:1"), why.into());
                ManagerAnswer::Leader(Leader { server, address, cut_off })
            }
            Does::Refuses => return Err(ErrorKind::Unavailable.into()),
            Does::Denies => return Err(Error::with(ErrorKind::WrongPeer, "an old disk")),
            Does::Hangs => std::future::pending().await,
        };
        Ok(answer.into())
    }
}

/// The map of a cluster with so many managers, of which the first leads.
fn of(managers: u32) -> ClusterMap {
    let server = |id| Server { id, up: true, ..server_at(&format!("h{id}:1")) };
    let servers = (1..=managers).map(|id| Server { manager: true, ..server(id) }).collect();
    ClusterMap { leader: 1, ..map(1, servers) }
}

/// A view of it, and its managers.
fn managers(count: u32, does: &[Does]) -> (Arc<MapView>, Vec<Arc<Puppet>>) {
    let callers = callers(60_000);
    let puppet = |(id, &does): (u32, &Does)| {
        let (does, asked) = (PlainMutex::new(does), PlainMutex::default());
        let puppet = Arc::new(Puppet { id, does, asked });
        let manager = Some(puppet.clone() as Arc<dyn ManagerService>);
        callers.register_local(ServerId(id), LocalServices { manager, ..Default::default() });
        puppet
    };
    let puppets = (1..).zip(does).map(puppet).collect();
    (MapView::fixed(callers, of(count)), puppets)
}

fn beat() -> ManagerOp {
    ManagerOp::Heartbeat(Heartbeat::default())
}

async fn who_answers(view: &MapView, op: ManagerOp) -> Result<u64> {
    match view.ask_manager(op).await?.answer {
        Some(ManagerAnswer::Epoch(id)) => Ok(id),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_manager_that_leads_is_asked_first_and_alone() {
    let (view, puppets) = managers(2, &[Does::Answers, Does::Names(1)]);
    assert_eq!(who_answers(&view, beat()).await.unwrap(), 1);
    assert!(puppets[1].asked.lock().is_empty());
}

/// A question waited for the one that was gone, for as long as a connection takes to break.
#[tokio::test(start_paused = true)]
async fn who_never_answers_is_not_waited_for_when_another_leads() {
    let (view, puppets) = managers(2, &[Does::Hangs, Does::Names(1)]);
    let began = Instant::now();
    let other = puppets[1].clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        *other.does.lock() = Does::Answers;
    });
    assert_eq!(who_answers(&view, beat()).await.unwrap(), 2);
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!(puppets[0].asked.lock()["beat"], 1, "one question is enough");
}

#[tokio::test(start_paused = true)]
async fn while_nobody_leads_a_question_waits_for_some_seconds() {
    let (view, _) = managers(2, &[Does::Hangs, Does::Names(1)]);
    let began = Instant::now();
    let error = who_answers(&view, beat()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("server 1, h1:1) is away"), "{error}");
    assert!(began.elapsed() < Duration::from_millis(4_500), "{:?}", began.elapsed());
}

/// The leader was said to be away, which knew as well as the others that the database was.
#[tokio::test(start_paused = true)]
async fn why_nobody_leads_is_told_by_the_word_of_managers_that_do_not_reach_their_store() {
    let nobody = "no manager leads the cluster now: no database";
    let one_more = "the manager that leads (server 1, h1:1) is away, and another says: no database";
    for (does, told) in [
        ([Does::CutOff(0), Does::CutOff(1)], nobody),
        ([Does::Names(0), Does::CutOff(1)], nobody),
        ([Does::Hangs, Does::CutOff(1)], one_more),
    ] {
        let (view, _) = managers(2, &does);
        let began = Instant::now();
        let error = who_answers(&view, beat()).await.unwrap_err();
        assert_eq!((error.kind, &*error.detail), (ErrorKind::Unavailable, told));
        assert!(began.elapsed() >= Duration::from_secs(4), "another may be about to lead");
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_reach_its_store_sends_to_the_one_that_leads() {
    let (view, _) = managers(2, &[Does::CutOff(2), Does::Answers]);
    assert_eq!(who_answers(&view, beat()).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn that_a_store_was_not_reached_is_not_told_when_it_is_again() {
    let (view, puppets) = managers(2, &[Does::Hangs, Does::CutOff(1)]);
    let other = puppets[1].clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        *other.does.lock() = Does::Names(1);
    });
    let error = who_answers(&view, beat()).await.unwrap_err();
    assert!(error.detail.ends_with("is away"), "{error}");
}

/// Seed 2618000000747: of two managers the one that leads refused an old disk, and its server was told for ever that
/// nobody answers.
#[tokio::test(start_paused = true)]
async fn what_the_one_that_leads_refuses_is_told_at_once() {
    for does in [[Does::Denies, Does::Names(1)], [Does::Names(2), Does::Denies]] {
        let (view, puppets) = managers(2, &does);
        let began = Instant::now();
        let error = who_answers(&view, beat()).await.unwrap_err();
        assert_eq!((error.kind, error.detail.as_ref()), (ErrorKind::WrongPeer, "an old disk"));
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
        let asked = puppets.iter().map(|puppet| puppet.asked.lock()["beat"]);
        assert_eq!(asked.collect::<Vec<_>>(), [1, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_manager_that_is_away_is_told_at_once() {
    let (view, _) = managers(1, &[Does::Refuses]);
    let began = Instant::now();
    who_answers(&view, beat()).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Of `strake mount host2,host1:/v`, where the manager of host2 was starting anew, the word of host1 that it has none was the last
/// one: the mount failed at once, and the other way round it waited.
#[tokio::test(start_paused = true)]
async fn a_manager_that_may_be_back_is_waited_for_in_whatever_order_they_are_named() {
    for does in [[Does::Refuses, Does::Denies], [Does::Denies, Does::Refuses]] {
        let (view, _) = managers(2, &does);
        let error = who_answers(&view, beat()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        assert!(error.detail.ends_with("an old disk"), "{error}");
    }
    let (view, _) = managers(2, &[Does::Denies, Does::Denies]);
    let error = who_answers(&view, beat()).await.unwrap_err();
    assert_eq!((error.kind, error.detail.as_ref()), (ErrorKind::WrongPeer, "an old disk"));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_the_map_does_not_know_is_found_by_the_word_of_another() {
    let does = [Does::Refuses, Does::Names(3), Does::Answers];
    let (view, puppets) = managers(2, &does);
    assert_eq!(who_answers(&view, beat()).await.unwrap(), 3);
    assert_eq!(puppets[1].asked.lock()["beat"], 1);
}

#[tokio::test(start_paused = true)]
async fn what_must_not_happen_twice_is_sent_once_and_to_the_one_that_leads() {
    let plan = || ManagerOp::Plan(Default::default());
    let (view, puppets) = managers(2, &[Does::Names(2), Does::Answers]);
    assert_eq!(who_answers(&view, plan()).await.unwrap(), 2);
    assert_eq!(puppets[0].asked.lock().get("other"), None);
    assert_eq!(puppets[1].asked.lock()["other"], 1);
}
