//! The bodies of requests and replies, and the values in them that become those of `types`.

use prost::Message;
use samples::Gen;
use strake_types::form::{Form, Outcome, again, unsealed};
use strake_types::layout::{GroupTables, LayoutTemplate, Placement};
use strake_types::{Ack, Attr, ChunkIndex, Consistency, GroupId, Layout, SetAttr};
use strake_wire::hello::Hello;
use strake_wire::message::{common, jobs, manager, meta, recopies, scrubs, storage};

/// The random messages that `wire` tests its frames with.
#[path = "../../../crates/wire/src/message/samples.rs"]
mod samples;

/// Hellos, and requests to and replies of a manager.
pub const MANAGER: &[Form] = &[
    body::<Hello>("hello", || vec![Hello::new("f1", "host", true).encode_to_vec()]),
    body::<manager::ManagerRequest>("request", || encoded(generator().manager_requests())),
    body::<manager::ManagerReply>("reply", || encoded(generator().manager_replies())),
];

/// Requests to and replies of a metadata server.
pub const META: &[Form] = &[
    body::<meta::MetaRequest>("request", || encoded(generator().meta_requests())),
    body::<meta::MetaReply>("reply", || encoded(generator().meta_replies())),
];

/// Requests to and replies of a storage server.
pub const STORAGE: &[Form] = &[
    body::<storage::StorageRequest>("request", || encoded(generator().storage_requests())),
    body::<storage::StorageReply>("reply", || encoded(generator().storage_replies())),
];

/// Parts of messages that are checked when they become values.
pub const COMMON: &[Form] = &[
    Form { name: "layout", samples: layouts, seal: unsealed, check: check_layout },
    Form { name: "template", samples: templates, seal: unsealed, check: check_template },
    Form { name: "attributes", samples: attributes, seal: unsealed, check: check_attributes },
    Form { name: "change", samples: changes, seal: unsealed, check: check_change },
];

/// Messages of the corpus; another seed would do as well.
fn generator() -> Gen {
    Gen(1)
}

/// A request to a manager with each operation and random arguments.
pub fn manager_requests(seed: u64) -> Vec<manager::ManagerRequest> {
    Gen(seed).manager_requests()
}

/// A request to a metadata server with each operation and random arguments.
pub fn meta_requests(seed: u64) -> Vec<meta::MetaRequest> {
    Gen(seed).meta_requests()
}

/// A request to a storage server with each operation and random arguments.
pub fn storage_requests(seed: u64) -> Vec<storage::StorageRequest> {
    Gen(seed).storage_requests()
}

const fn body<M: Message + Default + PartialEq>(
    name: &'static str,
    samples: fn() -> Vec<Vec<u8>>,
) -> Form {
    let check = |bytes: &[u8]| again(bytes, |bytes| M::decode(bytes).ok(), M::encode_to_vec);
    Form { name, samples, seal: unsealed, check }
}

fn encoded<M: Message>(messages: Vec<M>) -> Vec<Vec<u8>> {
    messages.iter().map(M::encode_to_vec).collect()
}

fn samples_of<T>(values: Vec<T>, encode: impl Fn(&T) -> Vec<u8>) -> Vec<Vec<u8>> {
    values.iter().map(encode).collect()
}

/// A template of each distribution, from what people write.
fn all_templates() -> Vec<LayoutTemplate> {
    let words =
        ["simple_stripe", "basic", "progressive", "varstrip=0:32K,1:64K", "twod_stripe=2:4"];
    let template = |word: &str| LayoutTemplate {
        chunk_size: Some(1 << 20),
        distribution: Some(word.parse().expect("a distribution is read as it is shown")),
        width: Some(3),
        groups: None,
        copies: Some(2),
        ack: Some(Ack::Primary),
        min_copies: Some(2),
        consistency: Some(Consistency::Parallel),
    };
    words.into_iter().map(template).chain([LayoutTemplate::default()]).collect()
}

fn templates() -> Vec<Vec<u8>> {
    samples_of(all_templates(), encode_template)
}

fn encode_template(template: &LayoutTemplate) -> Vec<u8> {
    common::Template::from(template).encode_to_vec()
}

fn check_template(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| common::Template::decode(bytes).ok()?.try_into().ok();
    again(bytes, decode, encode_template)
}

/// Also one on listed groups, and some on what nearly full targets had left.
fn all_layouts() -> Vec<Layout> {
    let tables = GroupTables::of([GroupId::of_class(1, 7), GroupId::of_class(2, 7)]);
    let groups = Some(vec![GroupId::of_class(1, 5), GroupId::of_class(1, 2)]);
    let listed = LayoutTemplate { groups, ..LayoutTemplate::default() };
    let layouts = all_templates().into_iter().chain([listed.clone()]);
    let around = |wanted| Layout { around_full: Some(wanted), ..listed.resolve(42, &tables) };
    layouts.map(|template| template.resolve(42, &tables)).chain([2, 4].map(around)).collect()
}

fn layouts() -> Vec<Vec<u8>> {
    samples_of(all_layouts(), encode_layout)
}

fn encode_layout(layout: &Layout) -> Vec<u8> {
    common::FileLayout::from(layout).encode_to_vec()
}

/// A layout that was let in can be reckoned with.
fn check_layout(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| -> Option<Layout> {
        let layout: Layout = common::FileLayout::decode(bytes).ok()?.try_into().ok()?;
        place(&layout);
        Some(layout)
    };
    again(bytes, decode, encode_layout)
}

/// Pieces lie in their chunks and in the layout's groups, near the beginning and near the end of
/// what an offset can say.
fn place(layout: &Layout) {
    let placement = Placement::new(layout.clone());
    assert_eq!(placement.slots().len(), layout.width as usize, "{layout:?}");
    for start in [0, 1 << 40, u64::MAX - (1 << 22)] {
        let mut at = start;
        for piece in placement.pieces(start, u64::MAX).take(4) {
            let (_, chunk_bytes) = layout.chunk_bounds(piece.index);
            assert_eq!(piece.file_offset, at, "{layout:?}");
            assert!(piece.len > 0 && piece.chunk_offset + piece.len <= chunk_bytes, "{layout:?}");
            assert!(placement.slots().contains(&piece.group), "{layout:?}");
            at = at.saturating_add(piece.len);
        }
    }
    let last = layout.slot_of(ChunkIndex(u64::MAX));
    assert!(last < layout.width, "{layout:?}");
}

fn attributes() -> Vec<Vec<u8>> {
    let attributes = |(kind, layout): (u32, &Layout)| {
        let layout = Some(layout.into());
        common::Attributes { ino: 9, kind, mode: 0o644, layout, ..Default::default() }
    };
    encoded((1..=7).zip(all_layouts().iter().cycle()).map(attributes).collect())
}

fn check_attributes(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| common::Attributes::decode(bytes).ok()?.try_into().ok();
    again(bytes, decode, |attr: &Attr| common::Attributes::from(attr).encode_to_vec())
}

fn changes() -> Vec<Vec<u8>> {
    let time = common::Time { seconds: -1, nanos: 999_999_999 };
    let at = common::TimeSet { choice: Some(common::TimeChoice::At(time)) };
    let now = common::TimeSet { choice: Some(common::TimeChoice::Now(true)) };
    let everything = common::AttrChange {
        mode: Some(0o4755),
        uid: Some(1),
        gid: Some(2),
        length: Some(3),
        atime: Some(at),
        mtime: Some(now),
        ctime: Some(time),
        drop_setid: true,
    };
    encoded(vec![everything, common::AttrChange::default()])
}

fn check_change(bytes: &[u8]) -> Outcome {
    let decode = |bytes: &[u8]| common::AttrChange::decode(bytes).ok().map(SetAttr::from);
    again(bytes, decode, |change| common::AttrChange::from(change).encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The number of alternatives of a message, whose fields are numbered from 10.
    fn alternatives<M: Message + Default, A>(choice: impl Fn(M) -> Option<A>) -> usize {
        let known = |tag: &u32| {
            // An empty message is a whole one; so is an empty string of bytes. A number is not.
            let tried = [2, 0].map(|wire_type| {
                let mut bytes = Vec::new();
                prost::encoding::encode_varint(u64::from(tag << 3 | wire_type), &mut bytes);
                bytes.push(0);
                M::decode(&bytes[..]).ok().and_then(&choice)
            });
            tried.iter().any(Option::is_some)
        };
        (10..).take_while(known).count()
    }

    fn kinds<M, A>(messages: Vec<M>, choice: impl Fn(M) -> Option<A>) -> usize {
        let all = messages.into_iter().filter_map(choice);
        all.map(|alternative| std::mem::discriminant(&alternative)).collect::<HashSet<_>>().len()
    }

    #[test]
    fn every_operation_and_every_answer_is_in_the_corpus() {
        let mut g = generator();
        let counts = [
            (
                kinds(g.manager_requests(), |m| m.op),
                alternatives(|m: manager::ManagerRequest| m.op),
            ),
            (
                kinds(g.manager_replies(), |m| m.answer),
                alternatives(|m: manager::ManagerReply| m.answer),
            ),
            (kinds(g.meta_requests(), |m| m.op), alternatives(|m: meta::MetaRequest| m.op)),
            (kinds(g.meta_replies(), |m| m.answer), alternatives(|m: meta::MetaReply| m.answer)),
            (
                kinds(g.storage_requests(), |m| m.op),
                alternatives(|m: storage::StorageRequest| m.op),
            ),
            (
                kinds(g.storage_replies(), |m| m.answer),
                alternatives(|m: storage::StorageReply| m.answer),
            ),
        ];
        for (nth, (in_corpus, known)) in counts.into_iter().enumerate() {
            assert!(known > 3, "message {nth}: {known}");
            assert_eq!(in_corpus, known, "message {nth}");
        }
    }
}
