//! Whether what targets hold is sound: verified step by step, and repaired where another copy is. What
//! scrubs, the servers' own slow round and `fsck` share.

use crate::tag::{Tag, before};
use bytes::Bytes;
use metrics::counter;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strake_types::{ChunkId, Epoch, Error, ErrorKind, GroupId, Result, TargetId};
use strake_wire::map::MapView;
use strake_wire::message::scrubs::{ScrubFate, ScrubFinding};
use strake_wire::message::storage::{
    Chunk, Compare, Repair, Repaired, Scrub, ScrubReport, StorageAnswer, StorageOp, StorageRequest,
};

/// How often a group's primary is looked for.
const ASKS_MAX: u32 = 20;
/// Pause between that.
const ASK_PAUSE: Duration = Duration::from_millis(500);
/// As a message says that a scrub has met damage.
const MET_BY_SCRUB: u32 = 3;

/// A chunk with damage, or one of which a member's copy differs from the others'.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Where it was found.
    pub target: u32,
    /// The group it belongs to.
    pub group: u32,
    /// Which chunk.
    #[serde(serialize_with = "as_text")]
    pub chunk: ChunkId,
    /// What became of it.
    #[serde(serialize_with = "as_word")]
    pub fate: ScrubFate,
    /// True: its checksums are right, and it is not what the primary has.
    pub different: bool,
    /// What there is to say beside.
    pub detail: String,
    /// The file's paths; empty as long as nobody has looked, or if no file has it.
    pub paths: Vec<String>,
}

impl Finding {
    /// As servers tell it.
    pub fn told(&self) -> ScrubFinding {
        ScrubFinding {
            target: self.target,
            group: self.group,
            chunk: Some(self.chunk.into()),
            fate: self.fate as u32,
            different: self.different,
            detail: self.detail.clone(),
        }
    }

    /// From what a server has told.
    pub fn from_told(told: &ScrubFinding) -> Self {
        Self {
            target: told.target,
            group: told.group,
            chunk: told.chunk.unwrap_or_default().into(),
            fate: ScrubFate::of(told.fate),
            different: told.different,
            detail: told.detail.clone(),
            paths: Vec::new(),
        }
    }

    /// The file, or what there is to say instead.
    pub fn file(&self) -> String {
        match self.paths.first() {
            Some(path) => path.clone(),
            None => format!("({}, which no file has any more)", self.chunk),
        }
    }
}

/// Counts a chunk that was found damaged, or different.
pub fn count(finding: &Finding) {
    let (target, fate) = (finding.target.to_string(), finding.fate.word());
    counter!("strake_storage_scrub_findings_total", "target" => target, "fate" => fate)
        .increment(1);
}

fn as_text<S: serde::Serializer>(chunk: &ChunkId, out: S) -> std::result::Result<S::Ok, S::Error> {
    out.collect_str(chunk)
}

pub(crate) fn as_word<S: serde::Serializer>(
    fate: &ScrubFate,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    out.serialize_str(fate.word())
}

pub(crate) fn from_word<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<ScrubFate, D::Error> {
    let word = String::deserialize(from)?;
    ScrubFate::of_word(&word).ok_or_else(|| serde::de::Error::custom("no fate of a chunk"))
}

fn nonsense(target: u32) -> Error {
    Error::with(ErrorKind::Malformed, format!("target {target} answers something else"))
}

async fn ask(map: &MapView, target: u32, group: u32, op: StorageOp) -> Result<StorageAnswer> {
    let request = StorageRequest { target, group, op: Some(op), ..StorageRequest::default() };
    let (reply, _) = map.storage_of(TargetId(target))?.call(request, Bytes::new()).await?;
    reply.answer.ok_or_else(|| nonsense(target))
}

/// Asks the primary of a group, whoever that is by then.
async fn ask_primary(map: &MapView, group: GroupId, op: &StorageOp) -> Result<StorageAnswer> {
    let mut asked = 0;
    loop {
        let answer = match map.route(group) {
            Ok(route) => ask(map, route.primary.0, group.0, op.clone()).await,
            Err(error) => Err(error),
        };
        asked += 1;
        match answer {
            Err(error) if error.is_passing() && asked < ASKS_MAX => {
                tokio::time::sleep(ASK_PAUSE).await;
                // If it cannot be had, the next attempt says so.
                let _ = map.refresh().await;
            }
            other => return other,
        }
    }
}

/// Verifies the chunks of a target after a cursor, about so many bytes. What it found that is a copy of something, and damaged.
pub async fn verify(
    map: &MapView,
    target: u32,
    after: Option<Chunk>,
    budget_bytes: u64,
) -> Result<(ScrubReport, Vec<Finding>)> {
    let op = StorageOp::Scrub(Scrub { after, budget_bytes });
    let StorageAnswer::Scrub(report) = ask(map, target, 0, op).await? else {
        return Err(nonsense(target));
    };
    // An earlier release does not say the group: then nothing can be repaired.
    let groups = report.groups.iter().copied().chain(std::iter::repeat(target.saturating_sub(1)));
    let finding = |(chunk, group): (&Chunk, u32)| Finding {
        target,
        group,
        chunk: (*chunk).into(),
        fate: ScrubFate::Left,
        different: false,
        detail: String::new(),
        paths: Vec::new(),
    };
    let mut findings: Vec<Finding> = report.corrupt.iter().zip(groups).map(finding).collect();
    // With an older map it is a member by now. Where none newer is to be had, all is told.
    if findings.iter().any(|finding| is_left_over(map, finding)) && map.refresh().await.is_ok() {
        findings.retain(|finding| !is_left_over(map, finding));
    }
    Ok((report, findings))
}

/// True for what a target has left of a group that it was a member of: no copy any more, until it is deleted.
fn is_left_over(map: &MapView, finding: &Finding) -> bool {
    let standing = map.standing(GroupId(finding.group), TargetId(finding.target));
    standing.epoch != Epoch(0) && !standing.member
}

/// Repairs what was found, where there are other copies.
pub async fn repair(map: &MapView, finding: &mut Finding) {
    if strake_base::is_broken("scrubs-repair") {
        finding.fate = ScrubFate::Repaired;
        return;
    }
    let op = Repair { chunk: finding.chunk.into(), met_by: MET_BY_SCRUB };
    let group = GroupId(finding.group);
    let (fate, detail) = match ask_primary(map, group, &StorageOp::Repair(op)).await {
        Ok(StorageAnswer::Repaired(Repaired { lost, blocks })) if lost.is_empty() => {
            look_again(map, finding, blocks).await
        }
        Ok(StorageAnswer::Repaired(Repaired { lost, .. })) => {
            let where_else = if group.copies() > 1 { "at every copy" } else { "in its only copy" };
            let first = lost.first().copied().unwrap_or_default();
            (
                ScrubFate::Lost,
                format!("{} blocks {where_else}, the first at byte {}", lost.len(), first * 4096),
            )
        }
        Ok(_) => (ScrubFate::Unknown, nonsense(finding.target).to_string()),
        Err(error) => (ScrubFate::Unknown, error.to_string()),
    };
    (finding.fate, finding.detail) = (fate, detail);
}

/// The fate of a chunk of which nothing is lost. Where nothing was repaired either, somebody else may have done that meanwhile; but a
/// primary of an earlier release says so, too, of a copy that it could not look at.
async fn look_again(map: &MapView, finding: &Finding, repaired: u64) -> (ScrubFate, String) {
    let damaged = match repaired {
        0 => is_damaged_still(map, finding).await,
        _ => Ok(false),
    };
    match damaged {
        Ok(false) => (ScrubFate::Repaired, "from another copy".into()),
        Ok(true) => (ScrubFate::Unknown, "its primary has repaired nothing of it".into()),
        Err(error) => (ScrubFate::Unknown, error.to_string()),
    }
}

async fn is_damaged_still(map: &MapView, finding: &Finding) -> Result<bool> {
    let tag = Tag::of(TargetId(finding.target), GroupId(finding.group));
    let after = before(tag.mark(finding.chunk)?).map(Chunk::from);
    // As little as can be asked for: the first chunk that there is from then on.
    let (_, found) = verify(map, finding.target, after, 1).await?;
    Ok(found.iter().any(|other| (other.group, other.chunk) == (finding.group, finding.chunk)))
}

/// A group's chunks, compared at all its members page by page.
pub struct Comparison {
    group: u32,
    repair: bool,
    after: Option<Chunk>,
    ended: bool,
}

impl Comparison {
    /// From the first chunk on. With `repair` all get what only one has, and else what the primary has.
    pub fn of(group: u32, repair: bool) -> Self {
        Self::after(group, repair, None)
    }

    /// From the chunk after a cursor on.
    pub fn after(group: u32, repair: bool, after: Option<Chunk>) -> Self {
        Self { group, repair, after, ended: false }
    }

    /// The last chunk that was compared; `None`: of all, or of none yet.
    pub fn cursor(&self) -> Option<Chunk> {
        self.after
    }

    /// The next page: how many chunks were compared, and which differ; `None`: all were.
    pub async fn next(&mut self, map: &MapView) -> Result<Option<(u64, Vec<Finding>)>> {
        if self.ended {
            return Ok(None);
        }
        let (group, repair) = (self.group, self.repair);
        let op = StorageOp::Compare(Compare { after: self.after, repair });
        let StorageAnswer::Compared(page) = ask_primary(map, GroupId(group), &op).await? else {
            return Err(nonsense(0));
        };
        let finding = |(nth, (chunk, &target)): (usize, (&Chunk, &u32))| Finding {
            target,
            group,
            chunk: (*chunk).into(),
            fate: match repair && !page.left.get(nth).is_some_and(|left| *left) {
                true => ScrubFate::Repaired,
                false => ScrubFate::Left,
            },
            different: true,
            detail: "another than the primary's".into(),
            paths: Vec::new(),
        };
        let findings = page.different.iter().zip(&page.members).enumerate().map(finding).collect();
        (self.after, self.ended) = (page.next, page.next.is_none());
        Ok(Some((page.chunks, findings)))
    }
}
