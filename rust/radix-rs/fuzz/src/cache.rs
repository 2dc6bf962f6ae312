//! libFuzzer over lives of a cache, each step compared with the plain reference of the tests.
#![no_main]

#[path = "../../tests/model.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| model::life_of_a_cache(bytes));
