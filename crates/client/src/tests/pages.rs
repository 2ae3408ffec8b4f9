//! What goes of files of which something is lost: what a kernel has of them, and what was read ahead.

use super::*;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::sync::Weak;

/// A kernel that notes what it is told, and whether some of that file was still unsent then.
struct Kernel {
    volume: Weak<Volume>,
    told: Mutex<Vec<(Ino, bool)>>,
}

impl Kernel {
    fn of(volume: &Arc<Volume>) -> Arc<Self> {
        let kernel = Arc::new(Self { volume: Arc::downgrade(volume), told: Mutex::default() });
        volume.set_believer(&kernel);
        kernel
    }

    fn take_told(&self) -> Vec<(Ino, bool)> {
        std::mem::take(&mut *self.told.lock())
    }
}

impl Believer for Kernel {
    fn recall(&self, _inodes: &[Ino]) -> Duration {
        Duration::ZERO
    }

    fn forget_contents(&self, _inodes: &[Ino]) -> BoxFuture<'static, bool> {
        Box::pin(async { true })
    }

    fn forget_soon(&self, ino: Ino) {
        let file = self.volume.upgrade().and_then(|volume| volume.inodes().file(ino));
        let unsent = file.is_some_and(|file| file.core().is_unsent());
        self.told.lock().push((ino, unsent));
    }
}

/// Its pages stayed under the time of the write that had failed, also for who opened the file after that.
#[tokio::test]
async fn a_kernel_drops_what_it_has_of_a_write_that_is_lost() {
    for refused in [true, false] {
        let (fake, volume) = cluster().await;
        fake.set_boot(1);
        let kernel = Kernel::of(&volume);
        let file = create(&volume, "a").await;
        let ino = file.ino();
        write(&volume, &file, 0, pattern(1, 20_000)).await;
        volume.fsync(&file, false).await.unwrap();
        drop(open(&volume, ino, OpenFlags::READ).await);
        assert!(open(&volume, ino, OpenFlags::READ).await.keep_cache());
        write(&volume, &file, 0, pattern(2, 20_000)).await;
        if refused {
            fake.fail("write", ErrorKind::NoSpace);
        } else {
            volume.flush(&file).await.unwrap();
            fake.set_boot(2);
        }
        assert!(kernel.take_told().is_empty());
        volume.fsync(&file, false).await.unwrap_err();
        assert_eq!(kernel.take_told(), [(ino, false)], "refused: {refused}");
        assert!(!open(&volume, ino, OpenFlags::READ).await.keep_cache());
    }
}

/// It was told when the file was closed and opened again, and its pages were taken for good.
#[tokio::test]
async fn a_kernel_drops_what_it_has_of_a_closed_file_of_which_something_is_lost() {
    let (fake, volume) = cluster().await;
    fake.set_boot(1);
    let kernel = Kernel::of(&volume);
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 20_000)).await;
    volume.release(&file).await.unwrap();
    let ino = file.ino();
    let keeps = async || {
        let file = open(&volume, ino, OpenFlags::READ).await;
        volume.release(&file).await.unwrap();
        file.keep_cache()
    };
    keeps().await;
    assert!(keeps().await);
    fake.set_boot(2);
    volume.sync_all().await.unwrap_err();
    assert_eq!(kernel.take_told(), [(ino, false)]);
    assert!(!keeps().await);
}

/// What was read of the target before was handed out when that had lost it.
#[tokio::test]
async fn what_was_read_ahead_goes_when_something_of_the_file_is_lost() {
    let (fake, volume) = cluster().await;
    fake.set_boot(1);
    let file = create(&volume, "a").await;
    write(&volume, &file, 0, pattern(1, 50 * CHUNK as usize)).await;
    volume.flush(&file).await.unwrap();
    volume.let_go(file.ino());
    for at in 0..3 {
        read(&volume, &file, at * CHUNK, CHUNK as u32).await;
    }
    assert!(file.state.core().ahead.covered_to(5 * CHUNK).is_some());
    fake.set_boot(2);
    volume.fsync(&file, false).await.unwrap_err();
    assert!(file.state.core().ahead.is_empty());
}
