//! CRC32C of blocks, and of what is made of blocks.
//!
//! The checksum of a range is put together from the checksums of its pieces, so bytes are read once
//! by the processor and not once per purpose. Appending `n` bytes to a message multiplies its CRC,
//! seen as a polynomial over GF(2), by `x^(8n)` modulo the CRC's polynomial (Mark Adler's
//! `crc32_combine`); for whole blocks that product is four table look-ups.

use super::BLOCK_BYTES;
use std::sync::LazyLock;

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Products of every byte at every place with `x^(8 * BLOCK_BYTES)`.
static BLOCK_SHIFT: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let factor = power_of_x(BLOCK_BYTES);
    let mut table = [[0; 256]; 4];
    for (place, row) in table.iter_mut().enumerate() {
        for (byte, product) in (0u32..).zip(row.iter_mut()) {
            *product = multiply(factor, byte << (8 * place));
        }
    }
    table
});

/// The CRC of a block of zeros.
pub(super) static ZERO_BLOCK: LazyLock<u32> = LazyLock::new(|| of(&[0; BLOCK_BYTES as usize]));

/// CRC32C of some bytes.
pub(super) fn of(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// The CRC of a message `a b`, from those of `a` and `b` and the length of `b` in bytes.
pub(super) fn append(a: u32, b: u32, b_len: u64) -> u32 {
    multiply(power_of_x(b_len), a) ^ b
}

/// As [`append`], where `b` is one block.
pub(super) fn append_block(a: u32, b: u32) -> u32 {
    let table = &*BLOCK_SHIFT;
    let [b0, b1, b2, b3] = a.to_le_bytes().map(usize::from);
    table[0][b0] ^ table[1][b1] ^ table[2][b2] ^ table[3][b3] ^ b
}

/// `a * b` modulo the polynomial.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if a & (1 << bit) != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// `x^(8 * bytes)` modulo the polynomial.
fn power_of_x(bytes: u64) -> u32 {
    let (mut result, mut square) = (1 << 31, 1 << 30);
    let mut exponent = u128::from(bytes) * 8;
    while exponent > 0 {
        if exponent & 1 != 0 {
            result = multiply(square, result);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_pieces_make_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| ((i * i) >> 5) as u8).collect();
        for cut in [0, 1, 7, 4096, 12_345, 20_000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(append(of(a), of(b), b.len() as u64), of(&bytes), "cut at {cut}");
        }
        let (a, b) = bytes[..10_000].split_at(10_000 - 4096);
        assert_eq!(append_block(of(a), of(b)), of(&bytes[..10_000]));
        assert_eq!(append(0, of(&bytes), 20_000), of(&bytes));
    }
}
