//! What is the matter with one file for what its groups have, and have lost.

use super::{ANSWER_MAX, Health, no_answer};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strake_client::{ChunkView, OpenFile, Volume};
use strake_types::{Attr, ChunkIndex, GroupId, Result, TargetId};
use strake_wire::message::manager::{ClusterMap, Group};
use tokio::time::timeout;

/// Fewer copies of a group are in sync than the file asks for.
pub(super) fn too_few(group: &Group, attr: &Attr) -> Option<(Health, String)> {
    let least = attr.layout.as_ref()?.safety.min_copies;
    let there = group.in_sync().len();
    (there < least as usize).then(|| {
        let text = format!(
            "writes wait: {there} of its copies in group {} are in sync, and the file asks for {least} (--min-copies)",
            group.id
        );
        (Health::Broken, text)
    })
}

/// What the groups that have lost something since the file was made have not of it any more, as fsck judges: a hole cannot be told from
/// what was given up. Chunks that are only reserved are there, although they read as nothing.
pub(super) async fn losses(
    volume: &Volume,
    file: &Arc<OpenFile>,
    map: &ClusterMap,
    attr: &Attr,
    chunks: &[ChunkView],
) -> Result<Vec<(Health, String)>> {
    let expected = expected(map, attr, chunks);
    if expected.is_empty() {
        return Ok(Vec::new());
    }
    let looks = expected.into_iter().map(|(group, expected)| async move {
        let last = expected.last().copied().unwrap_or_default();
        (group.id, expected, held_in(volume, file, group, last).await)
    });
    let looked = join_all(looks).await;
    let now = volume.getattr(attr.ino).await?;
    let is_due = |nth: &u64| is_due(attr, &now, ChunkIndex(*nth));
    let problem = |(group, expected, held): (u32, Vec<u64>, Result<BTreeSet<u64>, String>)| {
        let absent = held.map(|held| {
            expected.into_iter().filter(|nth| !held.contains(nth) && is_due(nth)).collect()
        });
        given_up(group, absent)
    };
    Ok(looked.into_iter().filter_map(problem).collect())
}

/// The groups that have lost something since a file was made, with the chunks that it has there, ascending.
fn expected<'a>(
    map: &'a ClusterMap,
    attr: &Attr,
    chunks: &[ChunkView],
) -> Vec<(&'a Group, Vec<u64>)> {
    let lost = map.groups.iter().filter(|group| has_lost(group, attr));
    let mut expected: BTreeMap<u32, _> = lost.map(|group| (group.id, (group, vec![]))).collect();
    for chunk in chunks {
        if let Some((_, indices)) = expected.get_mut(&chunk.group) {
            indices.push(chunk.index);
        }
    }
    expected.into_values().filter(|(_, indices)| !indices.is_empty()).collect()
}

/// A group has lost something since a file was made.
fn has_lost(group: &Group, attr: &Attr) -> bool {
    let birth_ms = attr.btime.seconds.saturating_mul(1000);
    i64::try_from(group.lost_ms).is_ok_and(|lost_ms| birth_ms < lost_ms)
}

/// The file has a chunk there still: it was not removed, moved or cut off before that since it was looked at.
fn is_due(before: &Attr, now: &Attr, chunk: ChunkIndex) -> bool {
    let start = now.layout.as_ref().map_or(0, |layout| layout.chunk_bounds(chunk).0);
    now.nlink > 0 && now.layout == before.layout && start < now.length
}

/// The chunks that a group has of a file, as far as the last that is asked for; or why that is not known. Members in sync have the same.
async fn held_in(
    volume: &Volume,
    file: &Arc<OpenFile>,
    group: &Group,
    last: u64,
) -> Result<BTreeSet<u64>, String> {
    let mut why = "no copy is in sync".to_owned();
    for &member in group.in_sync() {
        match listed(volume, file, (group.id, member), last).await {
            Ok(held) => return Ok(held),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// The same of one member. Each page is waited for by itself.
async fn listed(
    volume: &Volume,
    file: &Arc<OpenFile>,
    (group, member): (u32, u32),
    last: u64,
) -> Result<BTreeSet<u64>, String> {
    let (mut held, mut next) = (BTreeSet::new(), Some(0));
    while let Some(from) = next {
        let page = volume.list_copy(file, GroupId(group), TargetId(member), from);
        let page = timeout(ANSWER_MAX, page).await.map_err(|_| no_answer())?;
        let page = page.map_err(|error| error.to_string())?;
        held.extend(page.indices);
        // A page that leads back would never end.
        next = page.next.filter(|next| from < *next && *next <= last);
    }
    Ok(held)
}

/// What is said of the chunks that a group ought to have and has not.
fn given_up(group: u32, absent: Result<Vec<u64>, String>) -> Option<(Health, String)> {
    let lost = format!("group {group} has lost what it had when the file was there already");
    let absent = match absent {
        Ok(absent) => absent,
        Err(why) => {
            let text = format!("{lost}, and whether its chunks are there is not known: {why}");
            return Some((Health::Degraded, text));
        }
    };
    let first = absent.first()?;
    let what = match absent.len() {
        1 => format!("chunk {first} is not there: it reads"),
        many => format!("{many} chunks, the first of them chunk {first}, are not there: they read"),
    };
    let text = format!(
        "{lost}, and {what} as zeros; restore the file from a backup, or, if it had a hole there, copy it"
    );
    Some((Health::Broken, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::{GroupTables, LayoutTemplate};
    use strake_wire::message::common::Attributes;

    fn file(length: u64) -> Attr {
        let attributes = Attributes { ino: 7, kind: 1, ..Attributes::default() };
        let mut attr = Attr { length, nlink: 1, ..attributes.try_into().unwrap() };
        attr.btime.seconds = 5;
        attr
    }

    #[test]
    fn chunks_are_looked_for_where_something_was_lost_since_their_file_was_made() {
        let chunk = |index, group| {
            let (targets, in_sync) = (Vec::new(), Vec::new());
            ChunkView { index, bytes: 9, group, targets, in_sync }
        };
        let chunks = [chunk(0, 3), chunk(1, 4), chunk(2, 3)];
        let looked_for = |lost_ms| {
            let group = |id, lost_ms| Group { id, lost_ms, ..Group::default() };
            let groups = vec![group(3, lost_ms), group(4, 0), group(5, 5_001)];
            let map = ClusterMap { groups, ..ClusterMap::default() };
            let found = expected(&map, &file(20), &chunks).into_iter();
            found.map(|(group, chunks)| (group.id, chunks)).collect::<Vec<_>>()
        };
        assert_eq!((looked_for(0), looked_for(5_000)), (vec![], vec![]));
        assert_eq!(looked_for(5_001), [(3, vec![0, 2])]);
    }

    /// It was fine, with every copy there, and read as zeros.
    #[test]
    fn a_chunk_that_was_given_up_is_told_of() {
        let told = |absent: &[u64]| given_up(3, Ok(absent.to_vec()));
        assert!(told(&[]).is_none(), "it is there");
        let (health, text) = told(&[2]).unwrap();
        assert!(health == Health::Broken && text.contains("chunk 2 is not there"), "{text}");
        assert!(told(&[0, 2]).unwrap().1.contains("2 chunks, the first of them chunk 0"));
        let (health, text) = given_up(3, Err("no answer for 3 s".to_owned())).unwrap();
        assert!(health == Health::Degraded && text.ends_with("not known: no answer for 3 s"));
    }

    #[test]
    fn what_is_cut_off_removed_or_moved_meanwhile_was_not_given_up() {
        let is_due = |now: &Attr| super::is_due(&file(20), now, ChunkIndex(0));
        assert!(is_due(&file(20)) && !is_due(&file(0)));
        assert!(!is_due(&Attr { nlink: 0, ..file(20) }));
        let tables = GroupTables::of([GroupId::of_class(1, 3)]);
        let layout = Some(LayoutTemplate::default().resolve(42, &tables));
        assert!(!is_due(&Attr { layout, ..file(20) }));
    }
}
