//! The crate next to its peers in Rust: one run, the same inputs, ratios. Peers are indexes of routers (who holds a
//! prefix): they keep no slots and, but for kv-index's tokens, compare hashes of blocks instead of tokens.
//!
//! `cargo run --release -- [calls] [threads] [evict] [instructions] [--full] [--rounds N] [--json FILE]`

mod calls;
mod evicting;
mod inputs;
mod profile;
mod table;
mod threads;
mod trees;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, numbers @ ..] = &words[..]
        && mode == "counted"
    {
        let numbers: Vec<usize> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
        let [leaves, num_tokens, calls] = numbers[..] else {
            eprintln!("counted LEAVES TOKENS CALLS");
            return ExitCode::FAILURE;
        };
        evicting::counted(leaves, num_tokens, calls);
        return ExitCode::SUCCESS;
    }
    if let [mode, what] = &words[..]
        && mode == "profile"
    {
        return match profile::run(what) {
            Some(calls) => {
                println!("{calls} calls");
                ExitCode::SUCCESS
            }
            None => {
                eprintln!("profile hit | lock | new | again");
                ExitCode::FAILURE
            }
        };
    }
    let after = |option: &str| words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
    let rounds = after("--rounds").and_then(|number| number.parse().ok()).unwrap_or(9);
    let full = words.iter().any(|word| word == "--full");
    let leaves: &[usize] = if full { &[1_000, 10_000, 100_000, 1_000_000] } else { &[1_000, 10_000] };
    let evicted: &[usize] = if full { &[1_000, 10_000, 50_000, 100_000, 1_000_000] } else { &[1_000, 50_000, 200_000] };
    let known = ["calls", "threads", "evict", "instructions"];
    let chosen = |name: &str| words.iter().any(|word| word == name) || !words.iter().any(|w| known.contains(&&w[..]));
    let mut lines = Vec::new();
    println!("{:<34} {:>9} {:<18} {:>12} {:<6} {:>9}", "measure", "leaves", "who", "figure", "", "ratio");
    if chosen("calls") {
        calls::measure(leaves, rounds, &mut lines);
    }
    if chosen("threads") {
        threads::measure(rounds, &mut lines);
    }
    if chosen("evict") {
        evicting::measure(evicted, rounds, &mut lines);
    }
    if chosen("instructions") {
        evicting::instructions(leaves, &mut lines);
    }
    if let Some(path) = after("--json") {
        let all: Vec<String> = lines.iter().map(table::Line::json).collect();
        if let Err(error) = std::fs::write(path, format!("[\n{}\n]\n", all.join(",\n"))) {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
