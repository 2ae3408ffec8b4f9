//! Open files by the numbers that the kernel knows them by.

use parking_lot::RwLock;

/// A table of open files. Numbers are reused once they are released.
pub struct Handles<T> {
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    used: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { slots: RwLock::new(Slots { used: Vec::new(), free: Vec::new() }) }
    }
}

impl<T: Clone> Handles<T> {
    /// Gives a file a number.
    pub fn add(&self, file: T) -> u64 {
        let mut slots = self.slots.write();
        let at = match slots.free.pop() {
            Some(at) => at,
            None => {
                slots.used.push(None);
                slots.used.len() - 1
            }
        };
        slots.used[at] = Some(file);
        at as u64
    }

    /// The file with this number.
    pub fn get(&self, handle: u64) -> Option<T> {
        self.slots.read().used.get(usize::try_from(handle).ok()?)?.clone()
    }

    /// Whether there is such a file. Looks at all that are open.
    pub fn any(&self, is_meant: impl Fn(&T) -> bool) -> bool {
        self.slots.read().used.iter().flatten().any(is_meant)
    }

    /// The file with this number, which then is free.
    pub fn remove(&self, handle: u64) -> Option<T> {
        let at = usize::try_from(handle).ok()?;
        let mut slots = self.slots.write();
        let file = slots.used.get_mut(at)?.take()?;
        slots.free.push(at);
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_until_released_and_then_reused() {
        let handles = Handles::default();
        let (a, b) = (handles.add('a'), handles.add('b'));
        assert_eq!((handles.get(a), handles.get(b)), (Some('a'), Some('b')));
        assert!(handles.any(|&file| file == 'a'));
        assert_eq!(handles.remove(a), Some('a'));
        assert!(!handles.any(|&file| file == 'a'));
        assert_eq!((handles.get(a), handles.remove(a)), (None, None));
        assert_eq!(handles.add('c'), a);
        assert_eq!(handles.get(u64::MAX), None);
    }
}
