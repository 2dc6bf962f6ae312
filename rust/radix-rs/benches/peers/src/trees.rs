//! Ours and the peers behind one set of verbs. The peers are indexes of routers: they say who holds a prefix, and have
//! no slots. Their hashes of blocks are part of a call, as they are part of a request's way through a router.

use std::sync::Arc;

use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent, compute_block_hash_for_seq,
};
use radix_rs::{Namespace, TreeConfig};

use crate::inputs::PAGE;

pub trait Tree {
    const NAME: &'static str;
    fn new(page: usize) -> Self;
    fn insert(&mut self, tokens: &[u32], slots: &[i32]);
    /// Tokens found.
    fn find(&mut self, tokens: &[u32]) -> usize;
}

pub struct Ours(pub radix_rs::RadixTree, pub Namespace);

impl Tree for Ours {
    const NAME: &'static str = "radix-rs";

    fn new(page: usize) -> Self {
        let config = TreeConfig { page_size: page, ..Default::default() };
        Ours(radix_rs::RadixTree::new(config).expect("a page size that is allowed"), Namespace::default())
    }

    fn insert(&mut self, tokens: &[u32], slots: &[i32]) {
        self.0.insert(tokens, slots, &self.1).expect("slots of whole pages");
    }

    fn find(&mut self, tokens: &[u32]) -> usize {
        self.0.match_prefix(tokens, &self.1).length()
    }
}

/// kv-index's tree of tokens, whose pages are its own choice.
pub struct TokenTree(pub kv_index::TokenTree);

impl Tree for TokenTree {
    const NAME: &'static str = "kv-index tokens";

    fn new(_page: usize) -> Self {
        TokenTree(kv_index::TokenTree::new())
    }

    fn insert(&mut self, tokens: &[u32], _slots: &[i32]) {
        self.0.insert_tokens(tokens, "worker");
    }

    fn find(&mut self, tokens: &[u32]) -> usize {
        self.0.match_prefix_with_counts(tokens).matched_token_count
    }
}

/// kv-index's chains of block hashes.
pub struct Chains(kv_index::ChainIndex, kv_index::ChainBlockMap, u32);

impl Tree for Chains {
    const NAME: &'static str = "kv-index chains";

    fn new(_page: usize) -> Self {
        let index = kv_index::ChainIndex::new();
        let worker = index.intern_worker("worker").expect("the first worker");
        Chains(index, kv_index::ChainBlockMap::new(), worker)
    }

    fn insert(&mut self, tokens: &[u32], _slots: &[i32]) {
        let content = kv_index::compute_request_content_hashes(tokens, PAGE);
        let whole = kv_index::request_prefix_hashes(&content);
        let blocks: Vec<_> = content
            .iter()
            .zip(&whole)
            .map(|(&content_hash, &seq_hash)| kv_index::StoredBlock { seq_hash, content_hash })
            .collect();
        self.0.apply_stored(self.2, &blocks, None, &mut self.1).expect("a chain from the root");
    }

    fn find(&mut self, tokens: &[u32]) -> usize {
        let content = kv_index::compute_request_content_hashes(tokens, PAGE);
        let found = self.0.find_matches(&content, false);
        found.scores.values().max().map_or(0, |&blocks| blocks as usize * PAGE)
    }
}

/// smg-radix-tree, with the hashes of kv-index: it brings none.
pub struct Smg {
    tree: radix_tree::RadixTree,
    holder: radix_tree::HolderId,
    scratch: radix_tree::OverlapScratch,
    found: Vec<radix_tree::Overlap>,
}

impl Tree for Smg {
    const NAME: &'static str = "smg-radix-tree";

    fn new(_page: usize) -> Self {
        let mut tree = radix_tree::RadixTree::new(radix_tree::Config::default());
        let holder = tree.create_holder("worker");
        Smg { tree, holder, scratch: Default::default(), found: Vec::new() }
    }

    fn insert(&mut self, tokens: &[u32], _slots: &[i32]) {
        let content = kv_index::compute_request_content_hashes(tokens, PAGE);
        let whole = kv_index::request_prefix_hashes(&content);
        let blocks: Vec<_> = whole.iter().zip(&content).map(|(key, content)| (key.0, content.0)).collect();
        self.tree.store(self.holder, None, &blocks).expect("a chain from the root");
    }

    fn find(&mut self, tokens: &[u32]) -> usize {
        let content: Vec<u64> =
            kv_index::compute_request_content_hashes(tokens, PAGE).into_iter().map(|hash| hash.0).collect();
        self.tree.overlap(&content, &mut self.scratch, &mut self.found);
        self.found.iter().map(|one| one.depth as usize * PAGE).max().unwrap_or(0)
    }
}

/// Dynamo's radix tree of the router.
pub struct Dynamo(dynamo_kv_router::RadixTree, u64);

fn dynamo_hashes(tokens: &[u32]) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, PAGE as u32, BlockHashOptions::default())
}

impl Tree for Dynamo {
    const NAME: &'static str = "dynamo-kv-router";

    fn new(_page: usize) -> Self {
        Dynamo(dynamo_kv_router::RadixTree::new(), 0)
    }

    fn insert(&mut self, tokens: &[u32], _slots: &[i32]) {
        let content = dynamo_hashes(tokens);
        let mut last = 0u64;
        let blocks = content
            .iter()
            .map(|&tokens_hash| {
                last = (last ^ tokens_hash.0).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                KvCacheStoredBlockData { block_hash: ExternalSequenceBlockHash(last), tokens_hash, mm_extra_info: None }
            })
            .collect();
        self.1 += 1;
        let stored = KvCacheStoreData { parent_hash: None, start_position: None, blocks };
        let event = KvCacheEvent { event_id: self.1, data: KvCacheEventData::Stored(stored), dp_rank: 0 };
        self.0.apply_event(RouterEvent::new(0, event)).expect("a chain from the root");
    }

    fn find(&mut self, tokens: &[u32]) -> usize {
        let found = self.0.find_matches(dynamo_hashes(tokens), false);
        found.scores.values().max().map_or(0, |&blocks| blocks as usize * PAGE)
    }
}

/// What threads may share: both are called by reference.
pub trait Shared: Tree + Sync + Send {
    /// Keeps a prompt in the tree as long as what is returned, where the tree would forget it while it is only read.
    fn keep(&self, tokens: &[u32]) -> Option<radix_rs::Lease>;
    fn read(&self, tokens: &[u32]) -> usize;
    /// Stores a request, then takes as much out again.
    fn churn(&self, tokens: &[u32], slots: &[i32], size: usize);
}

impl Shared for Ours {
    fn keep(&self, tokens: &[u32]) -> Option<radix_rs::Lease> {
        Some(self.0.lock_prefix(tokens, &self.1).expect("few users"))
    }

    fn read(&self, tokens: &[u32]) -> usize {
        self.0.match_prefix(tokens, &self.1).length()
    }

    fn churn(&self, tokens: &[u32], slots: &[i32], size: usize) {
        self.0.insert(tokens, slots, &self.1).expect("slots of whole pages");
        let mut out = Vec::new();
        self.0.evict(self.0.cached_tokens().saturating_sub(size), &mut out);
    }
}

impl Shared for TokenTree {
    fn keep(&self, _tokens: &[u32]) -> Option<radix_rs::Lease> {
        None // what is read counts as used
    }

    fn read(&self, tokens: &[u32]) -> usize {
        self.0.match_prefix_with_counts(tokens).matched_token_count
    }

    fn churn(&self, tokens: &[u32], _slots: &[i32], size: usize) {
        self.0.insert_tokens(tokens, "worker");
        self.0.evict_tenant(&Arc::from("worker"), size);
    }
}
