//! Every node, one at a time.

use super::{Core, NodeInfo, RadixTree};
use crate::children::Children;
use crate::epoch::Guard;
use crate::key::{Atom, Value};

/// The nodes of a tree from the roots down, parents before children. See [`RadixTree::iter_nodes`].
pub struct Nodes<'a, A: Atom = u32, V: Value = i32> {
    core: &'a Core<A, V>,
    guard: Guard<'a>,
    /// Siblings of the nodes on the way down that are still to come.
    todo: Vec<u32>,
}

impl<A: Atom, V: Value> std::fmt::Debug for Nodes<'_, A, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("waiting", &self.todo.len()).finish()
    }
}

impl<A: Atom, V: Value> Iterator for Nodes<'_, A, V> {
    type Item = NodeInfo;

    fn next(&mut self) -> Option<NodeInfo> {
        loop {
            let id = self.todo.pop()?;
            let word = self.core.load(id, &self.guard);
            let Some(info) = self.core.info(id, &self.guard) else { continue };
            // of the word before: what hung there then hangs there now or was evicted, split off or joined since
            let children = self.core.body(word, &self.guard).children();
            let at = self.todo.len();
            self.todo.extend(children.into_iter().flat_map(Children::iter).map(|entry| entry.node));
            self.todo[at..].reverse();
            return Some(info);
        }
    }
}

impl<A: Atom, V: Value> RadixTree<A, V> {
    /// All nodes from the roots down, parents before children, without collecting them first.
    ///
    /// # Concurrency
    /// Each node is as it was at one moment; the whole only at rest. Memory of what others evict is held until the iterator is
    /// dropped.
    ///
    /// # Examples
    /// ```
    /// # use radix_rs::{Namespace, RadixTree, TreeConfig};
    /// let (tree, ns): (RadixTree, _) = (RadixTree::new(TreeConfig::default())?, Namespace::default());
    /// tree.insert(&[1, 2, 3][..], &[10, 11, 12], &ns)?;
    /// tree.insert(&[1, 9][..], &[13, 14], &ns)?;
    /// let deepest = tree.iter_nodes().map(|node| node.end).max();
    /// assert_eq!(deepest, Some(3));
    /// # Ok::<(), radix_rs::Error>(())
    /// ```
    pub fn iter_nodes(&self) -> Nodes<'_, A, V> {
        let guard = self.core.guard();
        Nodes { core: &self.core, guard, todo: vec![self.core.spaces(), self.core.root()] }
    }
}
