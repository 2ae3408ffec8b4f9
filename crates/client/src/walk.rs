//! Notices that a program goes through the inodes of a directory and asks for something of each: then it is better to
//! ask the server for many at once. `ls -l` does, of directories with more than a mount keeps in mind.

use parking_lot::Mutex;
use strake_types::Ino;

/// Inodes asked for at once: at first, and at most.
const FIRST: u32 = 8;
const MOST: u32 = 1024;

/// How the last question and this one go together.
#[derive(Default)]
pub(crate) struct Walk(Mutex<Steps>);

#[derive(Default)]
struct Steps {
    last: u64,
    window: u32,
}

impl Walk {
    /// Something is to be asked of an inode. If it is near the last one, for how many it should be: how many numbers before
    /// this one, and how many inodes from there on.
    pub fn step(&self, ino: Ino) -> Option<(u32, u32)> {
        let mut steps = self.0.lock();
        let is_near = ino.0.abs_diff(steps.last) <= 2 * u64::from(steps.window.max(FIRST));
        steps.last = ino.0;
        steps.window = if is_near { (2 * steps.window).clamp(FIRST, MOST) } else { 0 };
        // Programs that made the files together have mixed their numbers a little.
        is_near.then_some((steps.window / 8, steps.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_asks_for_more_and_more_and_a_jump_for_one() {
        let walk = Walk::default();
        assert_eq!(walk.step(Ino(1_000)), None);
        assert_eq!(walk.step(Ino(1_001)), Some((1, 8)));
        assert_eq!(walk.step(Ino(1_008)), Some((2, 16)));
        assert_eq!(walk.step(Ino(1_030)), Some((4, 32)));
        assert_eq!(walk.step(Ino(9_000)), None);
        assert_eq!(walk.step(Ino(8_990)), Some((1, 8)));
        for nth in 0..20 {
            walk.step(Ino(10_000 + 8 * nth));
        }
        assert_eq!(walk.step(Ino(10_900)), Some((MOST / 8, MOST)));
    }
}
