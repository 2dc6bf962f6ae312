//! What making room costs: in time next to a peer, in instructions from a thousand leaves to a million, and at worst.

use std::process::Command;
use std::sync::Arc;

use crate::inputs::{Prompts, Random};
use crate::table::{Line, median, per_call_ns, ratio};
use crate::trees::{Ours, TokenTree, Tree};

/// Short requests: the same shape up to a million leaves.
const SHARED: usize = 512;
const OWN: usize = 64;

struct Full {
    tree: Ours,
    prompts: Prompts,
    next: usize,
}

impl Full {
    fn new(leaves: usize) -> Self {
        let mut full = Full { tree: Ours::new(1), prompts: Prompts::new(SHARED, OWN), next: 0 };
        full.grow(leaves);
        full
    }

    fn grow(&mut self, leaves: usize) {
        for number in self.next..self.next + leaves {
            self.tree.insert(&self.prompts.tokens(number), &self.prompts.slots(number));
        }
        self.next += leaves;
    }
}

/// What callgrind counts: nothing but the calls, by the name of this function.
#[inline(never)]
fn evict_measured(tree: &Ours, num_tokens: usize, calls: usize, out: &mut Vec<i32>) {
    for _ in 0..calls {
        out.clear();
        tree.0.evict(num_tokens, out);
    }
}

pub fn measure(leaf_counts: &[usize], rounds: usize, lines: &mut Vec<Line>) {
    const CALLS: usize = 64;
    let mut firsts: Vec<(usize, usize, f64)> = Vec::new();
    for &leaves in leaf_counts {
        let mut full = Full::new(leaves);
        let mut peer = (leaves <= 10_000).then(|| {
            let mut tree = TokenTree::new(1);
            (0..leaves).for_each(|number| tree.insert(&full.prompts.tokens(number), &[]));
            (tree, leaves)
        });
        let tenant = Arc::from("worker");
        for num_tokens in [64, 256] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let mut out = Vec::with_capacity(4096);
            for round in 0..=rounds {
                let spent = per_call_ns(1, |_| evict_measured(&full.tree, num_tokens, CALLS, &mut out)) / CALLS as f64;
                full.grow(CALLS * num_tokens / OWN);
                if round > 0 {
                    ours.push(spent);
                }
                if let Some((tree, next)) = &mut peer {
                    let calls = 4;
                    let spent = per_call_ns(calls, |_| {
                        let size = tree.0.tenant_token_size(&tenant);
                        tree.0.evict_tenant(&tenant, size.saturating_sub(num_tokens));
                    });
                    for number in *next..*next + calls * num_tokens / OWN {
                        tree.insert(&full.prompts.tokens(number), &[]);
                    }
                    *next += calls * num_tokens / OWN;
                    if round > 0 {
                        theirs.push(spent);
                    }
                }
            }
            let growth = firsts
                .iter()
                .find(|first| first.0 >= 50_000 && first.1 == num_tokens)
                .map(|first| median(&ours) / first.2);
            firsts.push((leaves, num_tokens, median(&ours)));
            let measure = format!("evict {num_tokens}");
            let required = growth.map(|_| ("<=", 2.0));
            let mut all = vec![Line {
                measure,
                leaves,
                who: Ours::NAME,
                value: median(&ours),
                unit: "ns",
                ratio: growth,
                required,
            }];
            if peer.is_some() {
                let (measure, value) = (format!("evict {num_tokens}"), median(&theirs));
                all.push(Line {
                    measure,
                    leaves,
                    who: TokenTree::NAME,
                    value,
                    unit: "ns",
                    ratio: Some(ratio(&theirs, &ours)),
                    required: None,
                });
            }
            all.iter().for_each(Line::print);
            lines.extend(all);
        }
        worst(&mut full, leaves, lines);
    }
}

/// The worst single call after all leaves were touched in random order, in processor time.
fn worst(full: &mut Full, leaves: usize, lines: &mut Vec<Line>) {
    let first = full.next - leaves;
    for number in Random(5).order(leaves) {
        full.tree.0.touch(&full.prompts.tokens(first + number)[..], &full.tree.1);
    }
    let mut out = Vec::with_capacity(4096);
    let mut spent: Vec<f64> = (0..(leaves / 2).min(20_000))
        .map(|_| {
            let start = processor_ns();
            evict_measured(&full.tree, 64, 1, &mut out);
            (processor_ns() - start) as f64
        })
        .collect();
    let middle = median(&spent);
    let at = spent.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(at, _)| at);
    spent.sort_by(f64::total_cmp);
    let worst = spent[spent.len() - 1];
    let high = spent[spent.len() - 1 - spent.len() / 1000];
    let measure = format!("worst evict 64, all touched (#{at})");
    let line = Line {
        measure,
        leaves,
        who: Ours::NAME,
        value: worst,
        unit: "ns",
        ratio: Some(worst / middle),
        required: Some(("<=", 20.0)),
    };
    line.print();
    lines.push(line);
    let measure = "  the same, 999th of 1,000".to_owned();
    let line =
        Line { measure, leaves, who: Ours::NAME, value: high, unit: "ns", ratio: Some(high / middle), required: None };
    line.print();
    lines.push(line);
}

fn processor_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux and the pointer is to a value of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A tree and some evictions for callgrind to count.
pub fn counted(leaves: usize, num_tokens: usize, calls: usize) {
    let full = Full::new(leaves);
    let mut out = Vec::with_capacity(4096);
    // What the first calls set up is not what a call costs.
    full.tree.0.evict(num_tokens, &mut out);
    evict_measured(&full.tree, num_tokens, calls, &mut out);
}

/// Instructions per call by callgrind, if there is one.
pub fn instructions(leaf_counts: &[usize], lines: &mut Vec<Line>) {
    const CALLS: usize = 64;
    let Ok(program) = std::env::current_exe() else { return };
    for num_tokens in [64, 256] {
        let mut first = None;
        for &leaves in leaf_counts {
            let done = Command::new("valgrind")
                .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*evict_measured*"])
                .arg(&program)
                .args(["counted", &leaves.to_string(), &num_tokens.to_string(), &CALLS.to_string()])
                .output();
            let Ok(done) = done else {
                println!("no valgrind: instructions are not counted");
                return;
            };
            let said = String::from_utf8_lossy(&done.stderr);
            let collected = said.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok());
            let Some(collected) = collected else {
                println!("valgrind counted nothing: {}", said.lines().last().unwrap_or_default());
                return;
            };
            let value = collected / CALLS as f64;
            let measure = format!("evict {num_tokens}, instructions");
            let ratio = first.map(|first| value / first);
            let required = ratio.map(|_| ("<=", 1.3));
            first = first.or(Some(value));
            let line = Line { measure, leaves, who: Ours::NAME, value, unit: "instr", ratio, required };
            line.print();
            lines.push(line);
        }
    }
}
