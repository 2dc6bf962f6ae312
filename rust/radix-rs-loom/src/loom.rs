//! Running a model under loom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use loom::thread;

use crate::is_control;

/// Explores a model with at most this many preemptions (`LOOM_MAX_PREEMPTIONS` may say less, but not for a control) and prints how many executions
/// that were.
pub fn explore(name: &str, preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let preemptions =
        builder.preemption_bound.filter(|_| !is_control()).map_or(preemptions, |most| most.min(preemptions));
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let (executions, start) = (Arc::new(AtomicUsize::new(0)), std::time::Instant::now());
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!(
        "{name}: {} executions with {preemptions} preemptions, {:.1} s",
        executions.load(Relaxed),
        start.elapsed().as_secs_f32()
    );
}

/// Runs one part beside the other and gives back what both say.
pub fn beside<A: 'static, B>(other: impl FnOnce() -> A + 'static, own: impl FnOnce() -> B) -> (A, B) {
    let other = thread::spawn(other);
    let own = own();
    (other.join().expect("loom stops at the first panic"), own)
}
