//! How many handles of a file are open here, of the kinds that count.

/// Open handles of this mount, by what they are for.
#[derive(Default)]
pub(crate) struct Handles {
    /// With O_DIRECT: while there are any, nothing is kept.
    pub(crate) direct: usize,
    /// Through them a kernel may keep pages of what is written although others write.
    pub(crate) paged: usize,
    /// By them the file may be mapped to be stored into.
    pub(crate) mapping: usize,
}
