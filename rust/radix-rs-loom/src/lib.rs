//! What the models share: how they are run, how a control is shown to fail, and what holds at rest.

use std::process::{Command, exit};

use radix_rs::checking::break_rule;
use radix_rs::{Namespace, RadixTree, TreeConfig};

#[cfg(radix_loom)]
pub mod loom;
#[cfg(radix_shuttle)]
pub mod shuttle;

/// Tells the process of a control which rule to break.
const BREAK: &str = "RADIX_BREAK";
/// How a process ends that found a fault.
const FOUND: i32 = 42;

/// Shows that a model fails once a rule is broken.
///
/// A failing model leaves threads in the middle of their work, whose locals cannot be dropped outside of it. So a control
/// is the same test in a process of its own, which ends where the fault is found.
pub fn control(test: &str, rule: &'static str, model: impl FnOnce()) {
    let text = control_text(test, rule, &[], model);
    let fault: Vec<&str> = text.lines().skip_while(|line| !line.contains("panicked at")).take(2).collect();
    println!("broken: {rule}\n{}", fault.join("\n"));
}

/// Whether this process is a control.
pub(crate) fn is_control() -> bool {
    std::env::var(BREAK).is_ok()
}

/// As [`control`], with more in the environment; returns what the process said.
pub fn control_text(test: &str, rule: &'static str, env: &[(&str, &str)], model: impl FnOnce()) -> String {
    if is_control() {
        break_rule(rule);
        std::panic::set_hook(Box::new(|fault| {
            println!("{fault}");
            exit(FOUND);
        }));
        model();
        println!("every schedule held");
        exit(0);
    }
    let mut child = Command::new(std::env::current_exe().expect("a test has a file"));
    child.args([test, "--exact", "--nocapture"]).env(BREAK, rule).envs(env.iter().copied());
    let output = child.output().expect("a test can be started");
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let found = output.status.code() == Some(FOUND) && !text.contains("fully deterministic");
    assert!(found, "nobody noticed that this was broken: {rule}\n{text}");
    text
}

/// The namespace of all models.
pub fn ns() -> Namespace {
    Namespace::default()
}

/// A tree whose values say where they come from.
pub fn tree() -> RadixTree {
    RadixTree::new(TreeConfig::default()).expect("a page of one token is allowed")
}

/// Inserts `tokens`; value `first + i` stands at position `i`. Returns how many values the tree took: the last ones.
pub fn insert(tree: &RadixTree, tokens: &[u32], first: i32) -> usize {
    let values: Vec<i32> = (first..).take(tokens.len()).collect();
    let done = tree.insert(tokens, &values, &ns()).expect("a model asks for nothing that is refused");
    assert_eq!(done.length, tokens.len());
    done.length - done.cached_len
}

/// Evicts; returns how many values came out.
pub fn evict(tree: &RadixTree, num_tokens: usize) -> usize {
    let mut out = Vec::new();
    let freed = tree.evict(num_tokens, &mut out);
    assert_eq!(freed, out.len());
    freed
}

/// The values of a match.
pub fn matched(tree: &RadixTree, tokens: &[u32]) -> Vec<i32> {
    let found = tree.match_prefix(tokens, &ns());
    let values: Vec<i32> = found.segments().iter().flat_map(|part| part.as_slice().to_vec()).collect();
    assert_eq!(values.len(), found.length());
    let atoms: Vec<u32> = found.segments().iter().flat_map(|part| part.atoms().to_vec()).collect();
    assert_eq!(atoms, tokens[..found.length()]);
    values
}

/// What holds at rest: every invariant, nothing pinned, and no value lost or doubled: `cached` are left, and come out once.
pub fn rest(tree: &RadixTree, cached: usize) {
    tree.check().unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(tree.protected_tokens(), 0, "something stayed pinned");
    assert_eq!(tree.cached_tokens(), cached, "a value was lost or doubled");
    let mut out = Vec::new();
    tree.evict(usize::MAX / 2, &mut out);
    let count = out.len();
    out.sort_unstable();
    out.dedup();
    assert_eq!((out.len(), count), (cached, cached), "a value was lost or doubled");
    tree.check().unwrap_or_else(|broken| panic!("{broken}"));
}
