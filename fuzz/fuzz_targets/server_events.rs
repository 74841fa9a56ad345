#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| trunkline_fuzz::server_events(data));
