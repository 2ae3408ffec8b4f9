//! The forms of bytes that the control plane is read from, for those who test decoders.

use crate::records::{
    self, Beat, Cluster, Group, Item, Job, Kind, PastLead, Recopy, Scrub, Server, Target, Volume,
};
use prost::Message;
use strake_types::form::{Form, Outcome, again, unsealed};
use strake_wire::frame::crc32c;
use strake_wire::message::manager::{VolumeSpec, Voucher};
use strake_wire::message::recopies::{RecopyLeft, RecopyTally, RecopyWish};
use strake_wire::message::scrubs::{ScrubFinding, ScrubTally};
use strake_wire::message::storage::Chunk;

/// Everything that is read from the control plane.
pub const FORMS: &[Form] = &[
    Form { name: "beat", samples: beats, seal, check: check::<Beat> },
    Form { name: "cluster", samples: clusters, seal, check: check::<Cluster> },
    Form { name: "server", samples: servers, seal, check: check::<Server> },
    Form { name: "target", samples: targets, seal, check: check::<Target> },
    Form { name: "group", samples: groups, seal, check: check::<Group> },
    Form { name: "job", samples: jobs, seal, check: check::<Job> },
    Form { name: "volume", samples: volumes, seal, check: check::<Volume> },
    Form { name: "key", samples: keys, seal: unsealed, check: check_key },
];

fn seal(bytes: &mut [u8]) {
    if let Some((framed, sum)) = bytes.split_last_chunk_mut() {
        *sum = crc32c(framed).to_le_bytes();
    }
}

fn encoded(record: &impl Message) -> Vec<u8> {
    records::encode(record).into()
}

fn check<T: Message + Default + PartialEq>(bytes: &[u8]) -> Outcome {
    again(bytes, |bytes| records::decode::<T>(b"key", bytes).ok(), encoded)
}

fn clusters() -> Vec<Vec<u8>> {
    let cluster = Cluster {
        uuid: "f1".repeat(16),
        capability_key: vec![7; 32].into(),
        epoch: 12,
        next_server: 3,
        next_target: 9,
        next_volume: 2,
        next_job: 4,
        job_rate: 1 << 20,
        next_fence: 2,
        leader: 1,
    };
    vec![encoded(&cluster)]
}

fn beats() -> Vec<Vec<u8>> {
    let address = "host:7440".into();
    let (number, lent_ms, own_ms, waits_ms, lead_ms) = (1 << 40, 900, 1_500, 300, 400);
    let past = vec![PastLead { server: 2, lasts_ms: 200 }];
    vec![encoded(&Beat {
        server: 1,
        address,
        number,
        ended: true,
        lent_ms,
        own_ms,
        waits_ms,
        lead_ms,
        past,
        loads: true,
        lost: true,
    })]
}

fn servers() -> Vec<Vec<u8>> {
    let address = "host:7440".into();
    vec![encoded(&Server {
        shares: true,
        address,
        manager: true,
        meta: true,
        name: "host".into(),
        store: "5a".into(),
        life: 1 << 63,
        ahead: true,
    })]
}

fn targets() -> Vec<Vec<u8>> {
    let (uuid, path) = ("0a".repeat(16), "/srv/a/target".into());
    vec![encoded(&Target {
        server: 1,
        uuid,
        path,
        total_bytes: 1 << 40,
        boot: "b0".into(),
        drains: true,
        generation: 6,
        given: 7,
        own_boot: 79,
    })]
}

fn groups() -> Vec<Vec<u8>> {
    let group = Group {
        epoch: 5,
        members: vec![3, 1 << 20, 7],
        in_sync: vec![3],
        joining: vec![7],
        losses: 2,
        leaving: vec![3],
        word: 77,
        vouchers: vec![Voucher { target: 3, boot: 78 }],
        never_used: true,
        lost_ms: 1 << 40,
        hand_over: 5,
        handed_in: 4,
        stands_for: 3,
    };
    vec![encoded(&group)]
}

fn jobs() -> Vec<Vec<u8>> {
    let item = Item {
        group: 1 << 20,
        from: 3,
        to: 4,
        state: 1,
        reason: "target 4 is away".into(),
        bytes: 1 << 30,
        sent: 4096,
        fixed: true,
        tries: 2,
        lost: true,
        uncounted: false,
    };
    let job = Job {
        kind: 2,
        state: 1,
        about: "target 3".into(),
        begun_ms: 1,
        ended_ms: 2,
        rate: Some(0),
        items: vec![item],
        targets: vec![3],
        servers: vec![2],
        remove: true,
        force: true,
        reason: "no room".into(),
        lose_data: true,
        drained_before: vec![3],
        ..Job::default()
    };
    vec![encoded(&job), encoded(&scrub_job()), encoded(&recopy_job())]
}

fn scrub_job() -> Job {
    let finding = ScrubFinding {
        target: 3,
        group: 1 << 20,
        chunk: Some(Chunk { volume: 1, ino: 77, index: 2 }),
        fate: 3,
        different: true,
        detail: "at every copy".into(),
    };
    let scrub = Scrub {
        target: 3,
        state: 4,
        reason: "1 chunk is damaged still".into(),
        bytes: 1 << 30,
        compare: vec![1 << 20],
        since_ms: 5,
        tally: ScrubTally { chunks: 9, bytes: 1 << 29, repaired: 2, left: 1, compared: 7 },
        findings: vec![finding],
        skipped: vec!["copies of group 7".into()],
    };
    let about = "all targets".into();
    Job { kind: 5, state: 4, about, scrubs: vec![scrub], no_repair: true, ..Job::default() }
}

fn recopy_job() -> Job {
    let path = "main:/dir".to_owned();
    let left = RecopyLeft { path: "main:/dir/file".into(), reason: "open by host".into() };
    let recopy = Recopy {
        wish: RecopyWish { volume: 1, ino: 1 << 40, copies: 2, path },
        reason: "its metadata server has not begun yet".into(),
        since_ms: 5,
        tally: RecopyTally { looked: 9, files: 7, bytes: 1 << 30 },
        left: 1,
        waiting: vec![left],
    };
    Job { kind: 6, state: 4, about: "main:/dir".into(), recopy: Some(recopy), ..Job::default() }
}

fn volumes() -> Vec<Vec<u8>> {
    let spec = VolumeSpec {
        name: "main".into(),
        inline_bytes_max: Some(8192),
        sync_always: Some(false),
        ..VolumeSpec::default()
    };
    let volume = Volume { spec, meta_server: 1, owned_since: 2, leaving: 3, ..Volume::default() };
    vec![encoded(&volume)]
}

fn keys() -> Vec<Vec<u8>> {
    vec![records::key(Kind::Cluster, 0), records::key(Kind::Volume, 300)]
}

fn check_key(bytes: &[u8]) -> Outcome {
    let kinds = [Kind::Cluster, Kind::Group, Kind::Job, Kind::Server, Kind::Target, Kind::Volume];
    let decode = |key: &[u8]| {
        let (code, id) = records::parse_key(key)?;
        let kind = kinds.into_iter().find(|kind| *kind as u8 == code)?;
        Some((kind, id))
    };
    again(bytes, decode, |(kind, id)| records::key(*kind, *id))
}
