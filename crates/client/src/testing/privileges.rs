//! What the fake metadata server knows of modes and extended attributes.

use super::{Fake, FakeFile};
use strake_types::Ino;
use strake_types::access::written_by_user;

impl Fake {
    /// The mode of a file.
    pub(crate) fn server_mode(&self, ino: Ino) -> u32 {
        self.state.lock().files[&ino.0].attr.mode
    }

    /// Somebody else gives a file an extended attribute.
    pub(crate) fn give_xattr(&self, ino: Ino) {
        let mut state = self.state.lock();
        let attr =
            &mut state.files.get_mut(&ino.0).expect("a test names a file that is there").attr;
        attr.version += 1;
        attr.no_xattrs = false;
    }
}

impl FakeFile {
    /// A write is told.
    pub(super) fn written_by(&mut self, user: bool) {
        if user {
            self.attr.mode = written_by_user(self.attr.mode);
        }
    }
}
