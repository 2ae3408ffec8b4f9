//! Groups with a target that is nearly full: new files leave them out where others are left.
//!
//! A file's chunks are dealt out over its groups one after the other, so that the fullest of their targets says how much there
//! is room for. One small disk that was full made every new file fail while all others had room.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use strake_types::layout::Groups;
use strake_types::{GroupId, Layout};
use strake_wire::message::manager::{ClusterMap, Target};

/// Most groups that the layout of a file lists.
const LISTED_MAX: usize = 128;

/// The groups that are nearly full.
#[derive(Debug, Default)]
pub(crate) struct Full(HashSet<GroupId>);

impl Full {
    fn of(map: &ClusterMap) -> Self {
        let is_low = |target: &&Target| target.spec.is_nearly_full(false);
        let low: HashSet<u32> = map.targets.iter().filter(is_low).map(|t| t.id).collect();
        if low.is_empty() {
            return Self::default();
        }
        let full = map.groups.iter().filter(|g| g.members.iter().any(|m| low.contains(m)));
        Self(full.map(|group| GroupId(group.id)).collect())
    }

    /// The layout of a new file without them, as long as others are left for at least half of its width. What is listed by name
    /// stays.
    pub fn avoid(&self, layout: Layout) -> Layout {
        let Groups::Table { copies, size } = layout.groups else { return layout };
        let has_room = |group: &GroupId| !self.0.contains(group);
        if self.0.is_empty() || layout.slots().iter().all(has_room) {
            return layout;
        }
        let full = self.0.iter().filter(|g| g.copies() == copies && g.ordinal() < size).count();
        // The slots of a wider file begin with those of a narrower one.
        let more = u32::try_from(full).unwrap_or(u32::MAX);
        let width = layout.width.saturating_add(more).min(size);
        let slots = Layout { width, ..layout.clone() }.slots();
        let most = (layout.width as usize).min(LISTED_MAX);
        let list: Vec<GroupId> = slots.into_iter().filter(has_room).take(most).collect();
        if list.is_empty() || list.len() * 2 < layout.width as usize {
            return layout;
        }
        let width = list.len() as u32;
        let around_full = Some(layout.width);
        Layout { width, groups: Groups::List(list), around_full, ..layout }
    }
}

/// Those of the newest map.
#[derive(Default)]
pub(crate) struct FullNow(Mutex<Option<(Arc<ClusterMap>, Arc<Full>)>>);

impl FullNow {
    /// By this map; looked for once for each.
    pub fn by(&self, map: &Arc<ClusterMap>) -> Arc<Full> {
        let mut known = self.0.lock();
        if let Some((_, full)) = known.as_ref().filter(|(of, _)| Arc::ptr_eq(of, map)) {
            return full.clone();
        }
        let full = Arc::new(Full::of(map));
        *known = Some((map.clone(), full.clone()));
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_types::layout::{GroupTables, LayoutTemplate};
    use strake_wire::message::manager::{Group, TargetSpec};

    /// Targets that lead a group of one copy each, with so many bytes free of a thousand.
    fn full(free: &[u64]) -> Arc<Full> {
        let target = |(id, &free_bytes): (u32, &u64)| {
            let spec = TargetSpec { total_bytes: 1_000, free_bytes, ..TargetSpec::default() };
            Target { id, spec, up: true, ..Target::default() }
        };
        let group =
            |id| Group { id: GroupId::of_class(1, id).0, members: vec![id], ..Group::default() };
        let map = ClusterMap {
            targets: (0..).zip(free).map(target).collect(),
            groups: (0..free.len() as u32).map(group).collect(),
            ..ClusterMap::default()
        };
        FullNow::default().by(&Arc::new(map))
    }

    fn layout(seed: u64, size: u32, width: u32) -> Layout {
        let template = LayoutTemplate { width: Some(width), ..LayoutTemplate::default() };
        template.resolve(seed, &GroupTables::of([GroupId::of_class(1, size - 1)]))
    }

    #[test]
    fn new_files_go_around_what_is_nearly_full() {
        let full = full(&[900, 69, 900, 70]);
        let low = GroupId::of_class(1, 1);
        for seed in 0..20 {
            let around = full.avoid(layout(seed, 4, 0));
            assert_eq!((around.width, around.validate()), (3, Ok(())));
            assert_eq!(around.around_full, Some(4), "nobody has listed them");
            assert!(!around.slots().contains(&low));
            // A narrow one keeps its width; where it does not meet what is full it is as ever.
            let narrow = layout(seed, 4, 2);
            let around = full.avoid(narrow.clone());
            assert_eq!((around.width, around.slots().contains(&low)), (2, false));
            assert_eq!(around == narrow, !narrow.slots().contains(&low), "{around:?}");
        }
    }

    #[test]
    fn what_is_listed_by_name_stays_and_so_does_all_where_little_else_is_left() {
        let low = GroupId::of_class(1, 1);
        let listed = Layout { groups: Groups::List(vec![low]), ..layout(1, 4, 1) };
        assert_eq!(full(&[900, 10, 900, 900]).avoid(listed.clone()), listed);
        let all = layout(1, 4, 0);
        assert_eq!(full(&[10, 10, 10, 900]).avoid(all.clone()), all);
        assert_eq!(full(&[10, 10, 10, 10]).avoid(all.clone()), all);
        assert_eq!(full(&[10, 10, 900, 900]).avoid(all).width, 2);
    }
}
