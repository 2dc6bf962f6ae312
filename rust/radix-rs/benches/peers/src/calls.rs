//! One thread: finding and storing, next to the peers.

use crate::inputs::{OWN, Prompts, Random, SHARED};
use crate::table::{Line, median, per_call_ns, ratio};
use crate::trees::{Chains, Dynamo, Ours, Smg, TokenTree, Tree};

/// Calls of a round: 256 known prompts in random order, or as many new ones.
const CALLS: usize = 256;

/// A tree with what is asked of it.
struct Case<T> {
    tree: T,
    next: usize,
}

/// All cases look alike from here.
trait Timed {
    fn name(&self) -> &'static str;
    fn hit(&mut self, prompts: &[Vec<u32>]) -> f64;
    fn insert_new(&mut self, prompts: &Prompts) -> f64;
    fn insert_again(&mut self, prompts: &[(Vec<u32>, Vec<i32>)]) -> f64;
}

impl<T: Tree> Timed for Case<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn hit(&mut self, prompts: &[Vec<u32>]) -> f64 {
        per_call_ns(CALLS, |at| {
            let prompt = &prompts[at % prompts.len()];
            assert_eq!(self.tree.find(prompt), prompt.len(), "{} lost what was stored", T::NAME);
        })
    }

    fn insert_new(&mut self, prompts: &Prompts) -> f64 {
        let first = self.next;
        self.next += CALLS;
        let new: Vec<_> = (first..self.next).map(|number| (prompts.tokens(number), prompts.slots(number))).collect();
        per_call_ns(CALLS, |at| self.tree.insert(&new[at].0, &new[at].1))
    }

    fn insert_again(&mut self, known: &[(Vec<u32>, Vec<i32>)]) -> f64 {
        per_call_ns(CALLS, |at| self.tree.insert(&known[at % known.len()].0, &known[at % known.len()].1))
    }
}

fn case<T: Tree + 'static>(prompts: &Prompts, leaves: usize, page: usize) -> Box<dyn Timed> {
    let mut tree = T::new(page);
    for number in 0..leaves {
        tree.insert(&prompts.tokens(number), &prompts.slots(number));
    }
    Box::new(Case { tree, next: leaves })
}

/// Ours first; the peers up to a hundred thousand leaves.
fn cases(prompts: &Prompts, leaves: usize, page: usize) -> Vec<Box<dyn Timed>> {
    let mut all = vec![case::<Ours>(prompts, leaves, page)];
    if leaves <= 100_000 {
        all.push(case::<TokenTree>(prompts, leaves, page));
        all.push(case::<Chains>(prompts, leaves, page));
        all.push(case::<Smg>(prompts, leaves, page));
        all.push(case::<Dynamo>(prompts, leaves, page));
    }
    all
}

/// Times of `measure` for every case, round by round in turns; the first round warms up.
fn rounds(cases: &mut [Box<dyn Timed>], count: usize, mut measure: impl FnMut(&mut dyn Timed) -> f64) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); cases.len()];
    for round in 0..=count {
        for turn in 0..cases.len() {
            let at = (turn + round) % cases.len();
            let spent = measure(&mut *cases[at]);
            if round > 0 {
                times[at].push(spent);
            }
        }
    }
    times
}

pub fn measure(leaf_counts: &[usize], count: usize, lines: &mut Vec<Line>) {
    for &leaves in leaf_counts {
        // A million leaves of 208 tokens would only measure the machine's memory.
        let own = if leaves <= 100_000 { OWN } else { 64 };
        let prompts = Prompts::new(SHARED, own);
        for page in [1, 16] {
            let mut cases = cases(&prompts, leaves, page);
            let order = Random(3).order(leaves);
            let hot: Vec<_> = order.iter().take(4).map(|&number| prompts.tokens(number)).collect();
            // More than 32 MB of prompts: neither they nor the tree's edges stay in the processor's cache.
            let cold: Vec<_> = order.iter().take(4_800).map(|&number| prompts.tokens(number)).collect();
            let known: Vec<_> = (0..64.min(leaves)).map(|n| (prompts.tokens(n), prompts.slots(n))).collect();
            let mut skip = 0;
            let mut report = |name: &str, times: Vec<Vec<f64>>, cases: &[Box<dyn Timed>]| {
                for (case, spent) in cases.iter().zip(&times) {
                    let ratio = (case.name() != Ours::NAME).then(|| ratio(spent, &times[0]));
                    let measure = format!("{name}, page {page}");
                    let line = Line {
                        measure,
                        leaves,
                        who: case.name(),
                        value: median(spent),
                        unit: "ns",
                        ratio,
                        required: None,
                    };
                    line.print();
                    lines.push(line);
                }
            };
            let times = rounds(&mut cases, count, |case| case.hit(&hot));
            report("hit, hot", times, &cases);
            let times = rounds(&mut cases, count, |case| {
                skip = (skip + CALLS) % cold.len().saturating_sub(CALLS).max(1);
                case.hit(&cold[skip..(skip + CALLS).min(cold.len())])
            });
            report("hit, cold", times, &cases);
            let times = rounds(&mut cases, count, |case| case.insert_new(&prompts));
            report("insert new", times, &cases);
            let times = rounds(&mut cases, count, |case| case.insert_again(&known));
            report("insert again", times, &cases);
        }
    }
}
