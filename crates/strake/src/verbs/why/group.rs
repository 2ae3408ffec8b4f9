//! What is the matter with one file for what its groups have, and have lost.

use super::{Health, Member};
use std::collections::BTreeSet;
use strake_client::ChunkView;
use strake_types::Attr;
use strake_wire::message::manager::{ClusterMap, Group};

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

/// Chunks of a file that may have been given up.
pub(super) fn doubtful(map: &ClusterMap, attr: &Attr, chunks: &[ChunkView]) -> BTreeSet<u64> {
    let lost = map.groups.iter().filter(|group| has_lost(group, attr));
    let lost: BTreeSet<u32> = lost.map(|group| group.id).collect();
    chunks.iter().filter(|chunk| lost.contains(&chunk.group)).map(|chunk| chunk.index).collect()
}

/// A group has lost something since a file was made.
fn has_lost(group: &Group, attr: &Attr) -> bool {
    let birth_ms = attr.btime.seconds.saturating_mul(1000);
    i64::try_from(group.lost_ms).is_ok_and(|lost_ms| birth_ms < lost_ms)
}

/// Chunks that are not where something was lost, as fsck judges: a hole cannot be told from what was given up.
pub(super) fn given_up(group: &Group, attr: &Attr, members: &[Member]) -> Option<(Health, String)> {
    // Those in sync have the same.
    let answers = |member: &&Member| member.group == group.id && member.answer_ms.is_some();
    let absent = &members.iter().find(answers).filter(|_| has_lost(group, attr))?.absent;
    let first = absent.first()?;
    let what = match absent.len() {
        1 => format!("chunk {first} is not there: it reads"),
        many => format!("{many} chunks, the first of them chunk {first}, are not there: they read"),
    };
    let text = format!(
        "group {} has lost what it had when the file was there already, and {what} as zeros; restore the file from a backup, or, if it \
         had a hole there, copy it",
        group.id
    );
    Some((Health::Broken, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use strake_wire::message::common::Attributes;

    /// It was fine, with every copy there, and read as zeros.
    #[test]
    fn a_chunk_that_was_given_up_is_told_of() {
        let mut attr: Attr =
            Attributes { ino: 7, kind: 1, ..Attributes::default() }.try_into().unwrap();
        attr.btime.seconds = 5;
        let chunk = |index, group| {
            let (targets, in_sync) = (Vec::new(), Vec::new());
            ChunkView { index, bytes: 9, group, targets, in_sync }
        };
        let group = |lost_ms| Group { id: 3, lost_ms, ..Group::default() };
        let map = |lost_ms| ClusterMap { groups: vec![group(lost_ms)], ..ClusterMap::default() };
        let chunks = [chunk(0, 3), chunk(1, 4), chunk(2, 3)];
        let doubtful =
            |lost_ms| doubtful(&map(lost_ms), &attr, &chunks).into_iter().collect::<Vec<_>>();
        assert_eq!((doubtful(0), doubtful(5_000), doubtful(5_001)), (vec![], vec![], vec![0, 2]));
        let member = |absent: &[u64]| Member {
            group: 3,
            target: 1,
            name: "h1:/t".to_owned(),
            state: "only copy",
            chunks: 2,
            answer_ms: Some(1.0),
            damaged: BTreeMap::new(),
            absent: absent.iter().copied().collect(),
        };
        let told = |lost_ms, absent: &[u64]| given_up(&group(lost_ms), &attr, &[member(absent)]);
        assert!(told(5_001, &[]).is_none(), "it is there");
        assert!(told(0, &[0]).is_none(), "a hole");
        let (health, text) = told(5_001, &[2]).unwrap();
        assert!(health == Health::Broken && text.contains("chunk 2 is not there"), "{text}");
        assert!(told(5_001, &[0, 2]).unwrap().1.contains("2 chunks, the first of them chunk 0"));
    }
}
