//! Atomics with a pause point before every access. Only in a build with `--cfg radix_pause`, for the test that stops a
//! thread for ever at each step of each operation.

use std::cell::RefCell;
pub(crate) use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Steps until the thread stops.
    left: usize,
    /// Steps it has come by.
    taken: usize,
    stopped: bool,
    open: bool,
}

thread_local! {
    static GATE: RefCell<Option<Arc<Gate>>> = const { RefCell::new(None) };
}

/// Stops one thread before its n-th step, from outside.
pub struct Pause(Arc<Gate>);

impl Pause {
    /// A pause before step `step` (from 0) of the thread that enters it.
    pub fn before(step: usize) -> Self {
        Pause(Arc::new(Gate {
            state: Mutex::new(State { left: step, taken: 0, stopped: false, open: false }),
            changed: Condvar::new(),
        }))
    }

    /// Runs `work` on this thread, which stops when its step has come, until [`open`](Self::open). Returns whether it got there.
    pub fn run(&self, work: impl FnOnce()) -> bool {
        GATE.set(Some(self.0.clone()));
        // also when `work` panics: whoever waits for the thread must learn of it
        let through = Through(&self.0);
        work();
        drop(through);
        self.0.state.lock().expect("no panic under the lock").stopped
    }

    /// Steps that the thread has come by so far, stopped or not.
    pub fn steps(&self) -> usize {
        self.0.state.lock().expect("no panic under the lock").taken
    }

    /// Waits until the thread has stopped or is through; `true` if it stands at its step, `None` if it does neither in time.
    pub fn wait_for(&self, time: Duration) -> Option<bool> {
        let state = self.0.state.lock().expect("no panic under the lock");
        let waits = |s: &mut State| !s.stopped && !s.open;
        let (state, late) = self.0.changed.wait_timeout_while(state, time, waits).expect("no panic under the lock");
        (!late.timed_out()).then_some(state.stopped)
    }

    /// Lets the thread go on.
    pub fn open(&self) {
        self.0.state.lock().expect("no panic under the lock").open = true;
        self.0.changed.notify_all();
    }
}

/// The thread is through with its work: it has no gate any more, and nobody waits for it.
struct Through<'a>(&'a Gate);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        GATE.set(None);
        self.0.state.lock().expect("no panic under the lock").open = true;
        self.0.changed.notify_all();
    }
}

/// A pause point. Public for the controls of the test, which plant operations of their own that do stop others.
pub fn step() {
    let Ok(Some(gate)) = GATE.try_with(|gate| gate.borrow().clone()) else { return };
    let mut state = gate.state.lock().expect("no panic under the lock");
    state.taken += 1;
    if state.stopped || state.open {
        return;
    }
    if state.left > 0 {
        state.left -= 1;
        return;
    }
    state.stopped = true;
    gate.changed.notify_all();
    drop(gate.changed.wait_while(state, |s| !s.open).expect("no panic under the lock"));
}

macro_rules! paused {
    ($name:ident, $inner:ident, $value:ty $(, $generic:ident)?) => {
        #[derive(Debug)]
        pub(crate) struct $name$(<$generic>)?(std::sync::atomic::$inner$(<$generic>)?);

        #[allow(dead_code, reason = "the same set of operations for all of them")]
        impl$(<$generic>)? $name$(<$generic>)? {
            pub(crate) const fn new(value: $value) -> Self {
                $name(std::sync::atomic::$inner::new(value))
            }
            pub(crate) fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                won: Ordering,
                lost: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, won, lost)
            }
            pub(crate) fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                won: Ordering,
                lost: Ordering,
            ) -> Result<$value, $value> {
                step();
                self.0.compare_exchange(old, new, won, lost)
            }
            pub(crate) fn fetch_update(
                &self,
                won: Ordering,
                lost: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(lost);
                while let Some(new) = change(old) {
                    match self.compare_exchange(old, new, won, lost) {
                        Ok(_) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }
        }
    };
}

macro_rules! counted {
    ($name:ident, $value:ty) => {
        paused!($name, $name, $value);

        #[allow(dead_code, reason = "the same set of operations for all of them")]
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }
            pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_max(value, order)
            }
            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_and(value, order)
            }
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_or(value, order)
            }
        }
    };
}

counted!(AtomicI32, i32);
counted!(AtomicU32, u32);
counted!(AtomicU64, u64);
counted!(AtomicUsize, usize);
paused!(AtomicBool, AtomicBool, bool);
paused!(AtomicPtr, AtomicPtr, *mut T, T);
