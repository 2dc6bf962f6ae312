//! Who shares what with whom in a list of prompts, found by reading each of them once.
//!
//! A small radix tree of the prompts themselves: its edges are ranges of prompts, so nothing is copied. What nobody
//! shares is never read beyond its first page.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::Error;
use crate::key::{Atom, PageHash, Source};
use crate::namespace::Namespace;

/// The atoms `start..end` of a prompt, and how it goes on from the point above.
struct Point {
    prompt: u32,
    start: usize,
    end: usize,
    parent: u32,
    /// The next point below the same parent under the same key, 0 for none.
    twin: u32,
}

/// Points of a list of prompts. Point 0 stands above all namespaces.
pub(crate) struct Sharing {
    points: Vec<Point>,
    /// Where each prompt ends.
    ends: Vec<u32>,
    /// How much of each prompt one before it begins with too, in whole pages.
    shared: Vec<usize>,
}

/// What reads prompts: their sources and how pages become keys.
struct Reader<'a, S: ?Sized> {
    prompts: &'a [(&'a S, &'a Namespace)],
    page: usize,
    hash: PageHash,
}

/// Atoms that are compared at a time.
const BLOCK: usize = 256;

/// How many atoms of `a` from `at` on, below `upto`, equal those of `b`. What is no atom equals nothing.
fn common<A: Atom, S: Source<A> + ?Sized>(a: &S, b: &S, at: usize, upto: usize, block: &mut Vec<A>) -> usize {
    let mut done = at;
    while done < upto {
        let stop = upto.min(done + BLOCK);
        block.clear();
        if let Err(error) = a.copy_to(done..stop, block) {
            let position = if let Error::InvalidToken { position, .. } = error { position } else { done };
            block.clear();
            if a.copy_to(done..position.clamp(done, stop), block).is_err() {
                block.clear();
            }
        }
        done += b.common_prefix(done, block);
        if done < stop {
            break;
        }
    }
    done - at
}

impl Sharing {
    /// Reads the first `lengths[i]` atoms (whole pages) of each prompt, as far as somebody may share them.
    pub(crate) fn of<A: Atom, S: Source<A> + ?Sized>(
        prompts: &[(&S, &Namespace)],
        lengths: &[usize],
        page: usize,
        hash: PageHash,
    ) -> Self {
        let reader = Reader { prompts, page, hash };
        let top = Point { prompt: 0, start: 0, end: 0, parent: 0, twin: 0 };
        let mut sharing = Sharing { points: vec![top], ends: Vec::new(), shared: Vec::new() };
        let mut spaces: HashMap<Option<&[u8]>, u32> = HashMap::new();
        let mut heads: HashMap<(u32, u32), u32> = HashMap::new();
        let mut block = Vec::new();
        for (prompt, &length) in lengths.iter().enumerate() {
            let space = *spaces.entry(prompts[prompt].1.as_bytes()).or_insert_with(|| {
                sharing.points.push(Point { prompt: prompt as u32, start: 0, end: 0, parent: 0, twin: 0 });
                sharing.points.len() as u32 - 1
            });
            sharing.add::<A, S>(&reader, prompt as u32, length, space, &mut heads, &mut block);
        }
        sharing
    }

    fn add<A: Atom, S: Source<A> + ?Sized>(
        &mut self,
        reader: &Reader<'_, S>,
        prompt: u32,
        length: usize,
        space: u32,
        heads: &mut HashMap<(u32, u32), u32>,
        block: &mut Vec<A>,
    ) {
        let source = reader.prompts[prompt as usize].0;
        let (mut point, mut at) = (space, 0);
        let key = |at| reader.hash.key::<A, S>(source, at, reader.page);
        while at < length
            && let Some(first) = key(at)
        {
            let mut below = heads.get(&(point, first)).copied().unwrap_or(0);
            let mut same = 0;
            while below != 0 {
                let Point { prompt: other, end, twin, .. } = self.points[below as usize];
                let other = reader.prompts[other as usize].0;
                same = common(other, source, at, end.min(length), block) & !(reader.page - 1);
                if same > 0 {
                    break;
                }
                below = twin;
            }
            if below == 0 {
                let twin = heads.insert((point, first), self.points.len() as u32).unwrap_or(0);
                self.shared.push(at);
                self.ends.push(self.points.len() as u32);
                self.points.push(Point { prompt, start: at, end: length, parent: point, twin });
                return;
            }
            at += same;
            if at < self.points[below as usize].end {
                below = self.cut::<A, S>(reader, below, first, at, heads);
            }
            point = below;
        }
        self.shared.push(at);
        self.ends.push(point);
    }

    /// Puts a point above `low` that ends at `at`. `low` keeps what hangs below it.
    fn cut<A: Atom, S: Source<A> + ?Sized>(
        &mut self,
        reader: &Reader<'_, S>,
        low: u32,
        first: u32,
        at: usize,
        heads: &mut HashMap<(u32, u32), u32>,
    ) -> u32 {
        let high = self.points.len() as u32;
        let Point { prompt, start, parent, twin, .. } = self.points[low as usize];
        self.points.push(Point { prompt, start, end: at, parent, twin });
        let head = heads.get_mut(&(parent, first)).expect("a point is found by its first page");
        if *head == low {
            *head = high;
        } else {
            let mut before = *head;
            while self.points[before as usize].twin != low {
                before = self.points[before as usize].twin;
            }
            self.points[before as usize].twin = high;
        }
        let point = &mut self.points[low as usize];
        (point.start, point.parent, point.twin) = (at, high, 0);
        // Somebody may have written to the prompt meanwhile: then nobody finds this point any more, and that is all.
        if let Some(key) = reader.hash.key::<A, S>(reader.prompts[prompt as usize].0, at, reader.page) {
            self.points[low as usize].twin = heads.insert((high, key), low).unwrap_or(0);
        }
        high
    }

    /// How much of each prompt one before it begins with too.
    pub(crate) fn shared(&self) -> &[usize] {
        &self.shared
    }

    /// The prompts depth first: those that end at a point before those that go on below it, heavier branches first, equal
    /// ones in the order of their first prompts.
    pub(crate) fn depth_first(&self, weights: Option<&[f64]>) -> Vec<usize> {
        let n = self.points.len();
        let mut children = Groups::new(n, (1..n).map(|i| self.points[i].parent as usize));
        let ends = Groups::new(n, self.ends.iter().map(|&end| end as usize));
        let mut weight = vec![0.0; n];
        let mut first = vec![usize::MAX; n];
        for (prompt, &end) in self.ends.iter().enumerate() {
            weight[end as usize] += weights.map_or(1.0, |weights| weights[prompt]);
            first[end as usize] = first[end as usize].min(prompt);
        }
        let mut down = Vec::with_capacity(n);
        let mut todo = vec![0];
        while let Some(point) = todo.pop() {
            down.push(point);
            todo.extend(children.of(point).map(|i| children.members[i] + 1));
        }
        for &point in down.iter().rev().filter(|&&point| point != 0) {
            let parent = self.points[point].parent as usize;
            weight[parent] += weight[point];
            first[parent] = first[parent].min(first[point]);
        }
        let mut order = Vec::with_capacity(self.ends.len());
        todo.push(0);
        while let Some(point) = todo.pop() {
            order.extend_from_slice(&ends.members[ends.of(point)]);
            let range = children.of(point);
            let below = &mut children.members[range];
            below.sort_unstable_by(|&a, &b| {
                let (a, b) = (a + 1, b + 1);
                weight[b].total_cmp(&weight[a]).then(first[a].cmp(&first[b]))
            });
            todo.extend(below.iter().rev().map(|&child| child + 1));
        }
        order
    }
}

/// Numbers 0.. by the group each of them is in, ascending in each.
struct Groups {
    starts: Vec<usize>,
    members: Vec<usize>,
}

impl Groups {
    fn new(num_groups: usize, group_of: impl Iterator<Item = usize> + Clone) -> Self {
        let mut starts = vec![0; num_groups + 1];
        for group in group_of.clone() {
            starts[group + 1] += 1;
        }
        for i in 0..num_groups {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut members = vec![0; starts[num_groups]];
        for (i, group) in group_of.enumerate() {
            members[next[group]] = i;
            next[group] += 1;
        }
        Groups { starts, members }
    }

    fn of(&self, group: usize) -> Range<usize> {
        self.starts[group]..self.starts[group + 1]
    }
}
