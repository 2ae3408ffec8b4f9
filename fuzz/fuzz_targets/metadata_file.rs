#![no_main]
use strake_tests::decoders::{check, target};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    check(target("metadata_file"), input);
});
