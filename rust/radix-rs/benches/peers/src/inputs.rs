//! The same prompts for everybody.

/// Tokens of the system prompt that all share, and of each request's own part: whole pages of 16 both.
pub const SHARED: usize = 2000;
pub const OWN: usize = 208;
pub const PAGE: usize = 16;

/// Requests behind one system prompt.
pub struct Prompts {
    shared: Vec<u32>,
    own: usize,
}

impl Prompts {
    pub fn new(shared: usize, own: usize) -> Self {
        Self::seeded(7, shared, own)
    }

    /// Requests behind another system prompt.
    pub fn seeded(seed: u64, shared: usize, own: usize) -> Self {
        let mut random = Random(seed);
        Prompts { shared: (0..shared).map(|_| random.below(128_000)).collect(), own }
    }

    /// Request `number`. What tells it from the others comes first in its own part, so the edges are the same for all.
    pub fn tokens(&self, number: usize) -> Vec<u32> {
        let mut random = Random(number as u64 + 100);
        let mut tokens = self.shared.clone();
        tokens.push(number as u32);
        tokens.extend((1..self.own).map(|_| random.below(128_000)));
        tokens
    }

    /// Slots for it: those of the shared part are the first ones of the pool.
    pub fn slots(&self, number: usize) -> Vec<i32> {
        let first = self.shared.len() + number * self.own;
        (0..self.shared.len()).chain(first..first + self.own).map(|slot| slot as i32).collect()
    }
}

/// Numbers that only depend on where they start.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u32) -> u32 {
        ((self.next() >> 32) * u64::from(limit) >> 32) as u32
    }

    /// `0..count` in random order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            all.swap(at, self.below(at as u32 + 1) as usize);
        }
        all
    }
}
