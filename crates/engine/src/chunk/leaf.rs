//! Blocks of a chunk, 256 at a time.

/// What a block of a chunk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Block {
    /// Nothing: zeros.
    #[default]
    Hole,
    /// Zeros, with space set aside at a place.
    Reserved(u64),
    /// Bytes at a place, with their CRC32C.
    Data(u64, u32),
}

impl Block {
    /// The place it occupies.
    pub(super) fn place(self) -> Option<u64> {
        match self {
            Block::Hole => None,
            Block::Reserved(at) | Block::Data(at, _) => Some(at),
        }
    }
}

/// A [`Block`] in 12 bytes: places have 48 bits.
#[derive(Clone, Copy, Default)]
struct Packed {
    low: u32,
    high: u16,
    kind: u16,
    crc: u32,
}

impl From<Block> for Packed {
    fn from(block: Block) -> Self {
        let (kind, at, crc) = match block {
            Block::Hole => return Packed::default(),
            Block::Reserved(at) => (1, at, 0),
            Block::Data(at, crc) => (2, at, crc),
        };
        Packed { low: at as u32, high: (at >> 32) as u16, kind, crc }
    }
}

impl From<Packed> for Block {
    fn from(packed: Packed) -> Self {
        let at = u64::from(packed.low) | u64::from(packed.high) << 32;
        match packed.kind {
            0 => Block::Hole,
            1 => Block::Reserved(at),
            _ => Block::Data(at, packed.crc),
        }
    }
}

/// 256 consecutive blocks of a chunk; holes at the end are left out.
#[derive(Clone, Default)]
pub(super) struct Leaf {
    blocks: Vec<Packed>,
}

impl Leaf {
    pub(super) fn get(&self, nth: u64) -> Block {
        self.blocks.get(nth as usize).copied().unwrap_or_default().into()
    }

    pub(super) fn set(&mut self, nth: u64, block: Block) {
        let nth = nth as usize;
        if nth >= self.blocks.len() {
            if block == Block::Hole {
                return;
            }
            self.blocks.resize(nth + 1, Packed::default());
        }
        self.blocks[nth] = block.into();
    }

    /// Leaves out the holes at the end, and the room for them.
    pub(super) fn trim(&mut self) {
        let used = self.blocks.iter().rposition(|b| b.kind != 0).map_or(0, |last| last + 1);
        self.blocks.truncate(used);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        self.blocks.iter().map(|packed| (*packed).into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// One past the last block that is not a hole, after [`Leaf::trim`].
    pub(super) fn end(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Bytes of memory, about.
    pub(super) fn weight(&self) -> u64 {
        48 + self.blocks.capacity() as u64 * size_of::<Packed>() as u64
    }
}
