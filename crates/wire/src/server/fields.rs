//! What a body may become in memory.
//!
//! A list of messages takes two bytes for each that is empty, and up to 170 once they are decoded: 4 MiB became 350, before anybody
//! had asked whether the caller may say that. So the fields with a length (messages, texts, lists) are counted first. What they mean
//! is not known here: what is only bytes is looked through as well, and counts for little.

use prost::decode_length_delimiter;
use strake_types::{Error, ErrorKind, Result};

/// Most of them in a body: they take 45 MiB then. (Numbers take eight times what they take in the body, 32 MiB.) The largest heartbeat
/// has half as many, though all members of all groups that there can be were its server's; and a session names 400,000 open
/// files, of which no more than each second can look like a field with a length.
const FIELDS_MAX: usize = 256 << 10;
/// How deep below the body's own fields they are counted: in the operation, and in what it lists.
const DEPTH: u32 = 2;
/// Most steps for each byte of a body. Fields that end within those around them take one and a half, as each has two bytes and is looked
/// at once at each depth; and what is only bytes may look, a few times, as if it went on to the end of the body.
const STEPS_PER_BYTE_MAX: usize = 4;

/// Refuses a body that would become far larger than it is.
pub(super) fn check(body: &[u8]) -> Result<()> {
    // Each takes two bytes at least.
    if body.len() <= 2 * FIELDS_MAX {
        return Ok(());
    }
    let mut count = Count { fields: FIELDS_MAX, steps: STEPS_PER_BYTE_MAX * body.len() };
    count.take(body, 0, DEPTH).ok_or_else(|| {
        let detail = format!(
            "more than {FIELDS_MAX} messages, texts and lists in one body, or many of them overlap"
        );
        Error::with(ErrorKind::Malformed, detail)
    })
}

/// What more there may be of one body.
struct Count {
    /// With a length.
    fields: usize,
    /// Fields of any kind, counted each time that they are looked at. Where many go on behind the end of those around them, each looks
    /// at all that follow.
    steps: usize,
}

impl Count {
    /// Counts as the decoder goes on: until no more than `left` bytes follow, or to what it does not understand. Only when it has
    /// decoded a field it finds that the field goes on behind the end of the one around it. Nothing: there is too much.
    fn take(&mut self, mut rest: &[u8], left: usize, depth: u32) -> Option<()> {
        while rest.len() > left {
            self.steps = self.steps.checked_sub(1)?;
            let Ok(key) = decode_length_delimiter(&mut rest) else { break };
            let len = match key % 8 {
                0 => decode_length_delimiter(&mut rest).map(|_| 0),
                1 => Ok(8),
                2 => decode_length_delimiter(&mut rest),
                // Around a group, which nobody sends and the decoder passes over.
                3 | 4 => Ok(0),
                5 => Ok(4),
                _ => break,
            };
            let Ok(len) = len else { break };
            let Some((_, after)) = rest.split_at_checked(len) else { break };
            if key % 8 == 2 {
                self.fields = self.fields.checked_sub(1)?;
                if depth > 0 {
                    self.take(rest, after.len(), depth - 1)?;
                }
            }
            rest = after;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Work;
    use super::*;
    use crate::frame::ServiceClass;
    use crate::message::jobs::{Held, Progress};
    use crate::message::manager::{Heartbeat, ManagerOp, ManagerRequest, ScrubWord, TargetSpec};
    use crate::message::meta::{MetaOp, MetaRequest, OpenSession};
    use crate::message::scrubs::{ScrubFinding, ScrubProgress};
    use crate::message::storage::Chunk;
    use prost::{Message, encode_length_delimiter};
    use strake_types::limits::{BODY_BYTES_MAX, OPEN_FILES_MAX};

    /// A field with a length.
    fn field(number: usize, contents: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        encode_length_delimiter((number << 3) | 2, &mut field).unwrap();
        encode_length_delimiter(contents.len(), &mut field).unwrap();
        field.extend(contents);
        field
    }

    /// Empty ones, more than may be.
    fn many(number: usize) -> Vec<u8> {
        field(number, &[]).repeat(FIELDS_MAX + 1)
    }

    fn refused(service: ServiceClass, body: Vec<u8>) {
        let error = Work::decode(service, body.into()).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.detail.contains("in one body"), "{error}");
    }

    /// They became a hundred times as large, and were refused only then where their caller had a client's certificate.
    #[test]
    fn a_body_of_empty_messages_is_refused_before_it_is_decoded() {
        let (joined, beaten, recalled) = (10, 11, 39);
        refused(ServiceClass::Manager, field(joined, &many(6)));
        let findings = field(5, &many(5));
        refused(ServiceClass::Manager, field(beaten, &findings));
        refused(ServiceClass::Meta, field(recalled, &many(2)));
    }

    /// The decoder goes on with them, and finds out when it has them all.
    #[test]
    fn messages_behind_the_end_of_what_is_around_them_are_counted() {
        let findings = many(5);
        // To who goes by where the operation ends, what comes then is one field of which nothing can be understood.
        let mut unknown = Vec::new();
        encode_length_delimiter(findings.len() + 15, &mut unknown).unwrap();
        unknown.extend([7; 15]);
        assert_eq!(unknown.len(), 0x12, "and its length is the key of that one");
        let scrub = field(5, &[field(15, &unknown), findings].concat());
        let operation = field(11, &scrub[..5]);
        refused(ServiceClass::Manager, [&operation, &scrub[5..]].concat());
    }

    /// Each was looked at for each field before it: 4 MiB took minutes, before anybody asked whether the caller may say it.
    #[test]
    fn a_body_of_fields_that_all_go_on_to_its_end_is_refused() {
        let overlapping = |units: usize, bytes: usize| {
            let mut body = Vec::with_capacity(bytes);
            for _ in 0..units {
                body.extend([0x0a, 5, 0x0a]);
                // In four bytes, whatever is left.
                let left = bytes - body.len() - 4;
                body.extend((0..3).map(|at| (left >> (7 * at)) as u8 | 0x80));
                body.push((left >> 21) as u8);
            }
            // Numbers, which do not count.
            body.resize(bytes, 8);
            body
        };
        for bytes in [2 * FIELDS_MAX + 1000, BODY_BYTES_MAX] {
            // Of those alone there are too many soon; of the others not.
            for units in [bytes / 7, 100] {
                refused(ServiceClass::Manager, overlapping(units, bytes));
            }
        }
    }

    /// A heartbeat of a server whose are all members of all groups there can be.
    fn largest_heartbeat() -> Heartbeat {
        let chunk = Chunk { volume: 20_000, ino: 1 << 50, index: 1 << 30 };
        let target = TargetSpec {
            target: 8_000,
            uuid: "0".repeat(32),
            path: "/srv/strake/target-1000".into(),
            poisoned: "input/output error".into(),
            scrub: Some(ScrubWord { ended_unix_s: 1 << 31, repaired: 1, left: 1 }),
            ..TargetSpec::default()
        };
        let held = Held { target: 8_000, group: 2 << 20, chunks: 1 << 25, bytes: 1 << 44 };
        let progress =
            Progress { group: 2 << 20, member: 8_000, at: Some(chunk), ..Progress::default() };
        let finding = ScrubFinding { chunk: Some(chunk), ..ScrubFinding::default() };
        let scrub = ScrubProgress {
            findings: vec![finding; 2],
            skipped: vec!["a chunk that is being deleted".into(); 20],
            at: Some(chunk),
            ..ScrubProgress::default()
        };
        // Each of 8,000 targets leads a group of one copy, one of two and one of three.
        Heartbeat {
            targets: vec![target; 1_024],
            held: vec![held; 8_000 * (1 + 2 + 3)],
            progress: vec![progress; 8_000 * 3],
            scrubs: vec![scrub; 1_024],
            ..Heartbeat::default()
        }
    }

    #[test]
    fn the_largest_calls_there_can_be_are_taken() {
        let beat = ManagerRequest { op: Some(ManagerOp::Heartbeat(largest_heartbeat())) };
        // What is taken for a field, and its length.
        let open = [(1 << 30) | 2, 0].repeat(OPEN_FILES_MAX / 2);
        let session = OpenSession { writable: open.clone(), open, ..OpenSession::default() };
        let op = Some(MetaOp::OpenSession(session));
        let session = MetaRequest { op, ..MetaRequest::default() };
        for body in [beat.encode_to_vec(), session.encode_to_vec()] {
            assert!(2 * FIELDS_MAX < body.len() && body.len() <= BODY_BYTES_MAX, "{}", body.len());
            check(&body).unwrap();
        }
    }
}
