//! A way to a port of this machine that can be cut, as a network is: what is under way waits, and nothing is refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often those who carry look whether the way is cut.
const LOOK: Duration = Duration::from_millis(20);

/// The way. Its threads end with the program.
pub struct Way {
    /// Where it begins, on 127.0.0.1.
    pub port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    /// To a port on 127.0.0.1.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let begin = listener.local_addr().expect("it has an address").port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let shared = is_cut.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                carry(&near, &far, &shared);
                carry(&far, &near, &shared);
            }
        });
        Self { port: begin, is_cut }
    }

    /// From now on nothing gets through, or it does again.
    pub fn set_cut(&self, is: bool) {
        self.is_cut.store(is, Ordering::Relaxed);
    }
}

/// Carries what comes from one to the other, as long as both are there.
fn carry(from: &TcpStream, to: &TcpStream, is_cut: &Arc<AtomicBool>) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    let is_cut = is_cut.clone();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        if from.set_read_timeout(Some(LOOK)).is_err() {
            return;
        }
        loop {
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    continue;
                }
                Err(_) => break,
            };
            while is_cut.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _gone = to.shutdown(std::net::Shutdown::Both);
    });
}
