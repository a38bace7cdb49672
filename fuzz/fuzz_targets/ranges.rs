#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reqwest_steady::properties::ranges(data));
