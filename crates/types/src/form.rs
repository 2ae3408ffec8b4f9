//! What all decoders have in common, so that one test can hold every one of them to the same rule.
//!
//! Bytes that come from a peer or a disk may be anything. Each form of them that a decoder reads is
//! described by a [`Form`]; whoever tests decoders needs to know no more of it.

/// One form of bytes that a decoder reads.
#[derive(Clone, Copy)]
pub struct Form {
    /// What it is called in reports.
    pub name: &'static str,
    /// Examples, from the encoder that the program uses.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Makes the checksum right, where the form has one: damage that a checksum would find is let
    /// through to the code behind it.
    pub seal: fn(&mut [u8]),
    /// Decodes bytes, encodes what came out, and decodes that: see [`again`].
    pub check: fn(&[u8]) -> Outcome,
}

/// What became of bytes given to a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They mean nothing.
    Refused,
    /// What they mean is the same after it was encoded and decoded again.
    Same,
    /// It is not: the encoder or the decoder is wrong.
    Different,
}

/// Decodes, encodes and decodes again.
pub fn again<T: PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl FnOnce(&T) -> Vec<u8>,
) -> Outcome {
    let Some(value) = decode(bytes) else { return Outcome::Refused };
    match decode(&encode(&value)) == Some(value) {
        true => Outcome::Same,
        false => Outcome::Different,
    }
}

/// [`Form::seal`] of a form without a checksum.
pub fn unsealed(_bytes: &mut [u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoder_that_loses_something_is_found() {
        let number = |bytes: &[u8]| bytes.first_chunk().map(|b| u16::from_le_bytes(*b));
        assert_eq!(again(&[1], number, |n| n.to_le_bytes().to_vec()), Outcome::Refused);
        assert_eq!(again(&[1, 2], number, |n| n.to_le_bytes().to_vec()), Outcome::Same);
        assert_eq!(again(&[1, 2], number, |n| vec![*n as u8, 0]), Outcome::Different);
        assert_eq!(again(&[1, 2], number, |n| vec![*n as u8]), Outcome::Different);
    }
}
