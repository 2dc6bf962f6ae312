//! Many prompts at once are what single calls give.
//!
//! `PROPTEST_CASES` sets how many lists are tried.

use std::sync::Mutex;
use std::thread;

use proptest::prelude::*;
use radix_rs::{Error, Namespace, NewPrompt, PageHash, RadixTree, TreeConfig};

/// A prompt of pages of two kinds and a rest, in one of three namespaces: mostly prefixes and twins of others.
#[derive(Debug, Clone)]
struct Prompt {
    pages: Vec<u8>,
    rest: usize,
    space: usize,
}

impl Prompt {
    fn tokens(&self, page_size: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = self.pages.iter().flat_map(|&page| vec![7 + u32::from(page); page_size]).collect();
        tokens.extend(vec![7; self.rest * page_size / 16]);
        tokens
    }
}

fn prompt() -> impl Strategy<Value = Prompt> {
    (prop::collection::vec(0u8..2, 0..7), 0usize..16, prop_oneof![4 => Just(0usize), 1 => Just(1), 1 => Just(2)])
        .prop_map(|(pages, rest, space)| Prompt { pages, rest, space })
}

fn prompts(most: usize) -> impl Strategy<Value = Vec<Prompt>> {
    prop::collection::vec(prompt(), 0..most)
}

fn page_size() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1usize), Just(4), Just(16)]
}

fn page_hash() -> impl Strategy<Value = PageHash> {
    prop_oneof![3 => Just(PageHash::Mix), 1 => Just(PageHash::Constant)]
}

fn spaces() -> [Namespace; 3] {
    [Namespace::default(), Namespace::from("a"), Namespace::from("b")]
}

fn tree(page_size: usize, page_hash: PageHash) -> RadixTree {
    RadixTree::new(TreeConfig { page_size, page_hash, ..Default::default() }).unwrap()
}

/// Slots of the `n`-th prompt, which nobody else has.
fn slots(n: usize, len: usize) -> Vec<i32> {
    (0..len as i32).map(|i| n as i32 * 1024 + i).collect()
}

fn values(found: &radix_rs::Match) -> Vec<i32> {
    found.segments().iter().flat_map(|segment| segment.as_slice().to_vec()).collect()
}

/// A tree with a history: some prompts, of which some were used again and some parts were evicted.
fn grown(size: usize, hash: PageHash, before: &[Prompt], used: &[Prompt], evicted: usize) -> RadixTree {
    let tree = tree(size, hash);
    for (i, prompt) in before.iter().enumerate() {
        let tokens = prompt.tokens(size);
        tree.insert(&tokens, &slots(1000 + i, tokens.len()), &spaces()[prompt.space]).unwrap();
    }
    for prompt in used {
        tree.touch(&prompt.tokens(size), &spaces()[prompt.space]);
    }
    tree.evict(evicted * size, &mut Vec::new());
    tree
}

fn shape(tree: &RadixTree) -> Vec<(usize, usize, usize, i32)> {
    let mut shape: Vec<_> =
        tree.nodes().into_iter().map(|node| (node.start, node.end, node.num_children, node.priority)).collect();
    shape.sort_unstable();
    shape
}

proptest! {
    #[test]
    fn match_many_finds_what_single_matches_find(
        (size, hash) in (page_size(), page_hash()),
        (before, used, evicted) in (prompts(12), prompts(4), 0usize..10),
        asked in prompts(30),
    ) {
        let tree = grown(size, hash, &before, &used, evicted);
        let texts: Vec<_> = asked.iter().map(|prompt| prompt.tokens(size)).collect();
        let names = spaces();
        let list: Vec<_> = texts.iter().zip(&asked).map(|(text, prompt)| (&text[..], &names[prompt.space])).collect();
        let many = tree.match_many(&list);
        prop_assert_eq!(many.len(), list.len());
        for (found, (text, ns)) in many.iter().zip(&list) {
            let single = tree.match_prefix(*text, ns);
            prop_assert_eq!(found.length(), single.length());
            prop_assert_eq!(values(found), values(&single));
            prop_assert_eq!(found.segments().len(), single.segments().len());
            prop_assert_eq!(found.handle(), single.handle());
        }
    }

    #[test]
    fn insert_many_leaves_what_one_insert_after_the_other_leaves(
        (size, hash) in (page_size(), page_hash()),
        (before, used, evicted) in (prompts(12), prompts(4), 0usize..10),
        added in prompts(30),
    ) {
        let names = spaces();
        let texts: Vec<_> = added.iter().map(|prompt| prompt.tokens(size)).collect();
        let own: Vec<_> = texts.iter().enumerate().map(|(i, text)| slots(i, text.len())).collect();
        let list: Vec<_> = (0..added.len())
            .map(|i| NewPrompt {
                tokens: &texts[i][..],
                values: &own[i],
                namespace: &names[added[i].space],
                priority: i as i32,
            })
            .collect();
        let (one, many) = (grown(size, hash, &before, &used, evicted), grown(size, hash, &before, &used, evicted));
        let done = many.insert_many(&list).unwrap();
        prop_assert_eq!(done.len(), list.len());
        for (prompt, done) in list.iter().zip(done) {
            let single =
                one.insert_prioritized(prompt.tokens, prompt.values, prompt.namespace, prompt.priority).unwrap();
            prop_assert_eq!((done.cached_len, done.length), (single.cached_len, single.length));
            if done.length > 0 {
                let at_handle = values(&many.values(&done.handle).unwrap());
                prop_assert_eq!(at_handle, values(&many.match_prefix(prompt.tokens, prompt.namespace)));
            }
        }
        many.check().unwrap();
        prop_assert_eq!(shape(&many), shape(&one));
        for prompt in &list {
            let found = many.match_prefix(prompt.tokens, prompt.namespace);
            prop_assert_eq!(values(&found), values(&one.match_prefix(prompt.tokens, prompt.namespace)));
        }
        loop {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            many.evict(size, &mut a);
            one.evict(size, &mut b);
            prop_assert_eq!(&a, &b, "the order of eviction differs");
            if a.is_empty() {
                break;
            }
        }
    }

    #[test]
    fn insert_many_refuses_all_or_nothing_and_names_the_prompt(
        size in page_size(),
        before in prompts(8),
        added in prompts(12),
        (bad, fault) in (any::<prop::sample::Index>(), 0u8..2),
    ) {
        prop_assume!(!added.is_empty());
        let names = spaces();
        let tree = grown(size, PageHash::Mix, &before, &[], 0);
        let texts: Vec<_> = added.iter().map(|prompt| prompt.tokens(size)).collect();
        let mut own: Vec<_> = texts.iter().enumerate().map(|(i, text)| slots(i, text.len())).collect();
        // what single inserts into a twin say, one after the other, is what the list must say at once
        let bad = bad.index(added.len());
        match fault {
            0 => own[bad].push(9999),
            _ => own[bad].iter_mut().for_each(|slot| *slot = -1),
        }
        let list: Vec<_> = (0..added.len())
            .map(|i| NewPrompt { tokens: &texts[i], values: &own[i], namespace: &names[added[i].space], priority: 0 })
            .collect();
        let twin = grown(size, PageHash::Mix, &before, &[], 0);
        let first = list.iter().enumerate().find_map(|(i, prompt)| {
            twin.insert(prompt.tokens, prompt.values, prompt.namespace).err().map(|error| (i, error))
        });
        let (nodes, cached) = (shape(&tree), tree.cached_tokens());
        match (tree.insert_many(&list), first) {
            (Ok(_), None) => {}
            (Err(Error::InPrompt { prompt, error }), Some((i, single))) => {
                prop_assert_eq!((prompt, *error), (i, single));
                prop_assert_eq!((shape(&tree), tree.cached_tokens()), (nodes, cached));
                tree.check().unwrap();
            }
            (many, single) => prop_assert!(false, "{many:?}, but single inserts say {single:?}"),
        }
    }

    #[test]
    fn the_order_of_prefixes_is_that_of_a_plain_trie(
        size in page_size(),
        before in prompts(8),
        waiting in prompts(30),
        heavy in prop::option::of(prop::collection::vec(0u8..4, 30)),
    ) {
        let names = spaces();
        let tree = grown(size, PageHash::Mix, &before, &[], 0);
        let texts: Vec<_> = waiting.iter().map(|prompt| prompt.tokens(size)).collect();
        let list: Vec<_> =
            texts.iter().zip(&waiting).map(|(text, prompt)| (&text[..], &names[prompt.space])).collect();
        let weights: Option<Vec<f64>> =
            heavy.map(|heavy| heavy[..list.len()].iter().map(|&weight| f64::from(weight)).collect());
        let whole: Vec<_> = waiting.iter().map(|prompt| prompt.tokens(size).len() / size).collect();
        prop_assert_eq!(
            tree.prefix_order(&list, weights.as_deref()).unwrap(),
            plain_order(&waiting, &whole, size, weights.as_deref())
        );
        let cached: Vec<_> = list.iter().map(|(text, ns)| tree.match_prefix(*text, ns).length() / size).collect();
        prop_assert_eq!(
            tree.cached_prefix_order(&list, weights.as_deref()).unwrap(),
            plain_order(&waiting, &cached, size, weights.as_deref())
        );
    }
}

/// Depth first over groups of prompts that share their first pages, said as plainly as possible.
fn plain_order(waiting: &[Prompt], num_pages: &[usize], size: usize, weights: Option<&[f64]>) -> Vec<usize> {
    fn visit(
        group: Vec<usize>,
        depth: usize,
        key: &dyn Fn(usize, usize) -> Option<Vec<u32>>,
        weight: &dyn Fn(usize) -> f64,
        order: &mut Vec<usize>,
    ) {
        let mut branches: Vec<(Vec<u32>, Vec<usize>)> = Vec::new();
        for prompt in group {
            match key(prompt, depth) {
                None => order.push(prompt),
                Some(page) => match branches.iter_mut().find(|branch| branch.0 == page) {
                    Some(branch) => branch.1.push(prompt),
                    None => branches.push((page, vec![prompt])),
                },
            }
        }
        let total = |branch: &(Vec<u32>, Vec<usize>)| branch.1.iter().map(|&prompt| weight(prompt)).sum::<f64>();
        branches.sort_by(|a, b| total(b).total_cmp(&total(a)));
        for (_, branch) in branches {
            visit(branch, depth + 1, key, weight, order);
        }
    }
    let key = |prompt: usize, depth: usize| match depth {
        0 => Some(vec![waiting[prompt].space as u32]),
        _ => {
            let tokens = waiting[prompt].tokens(size);
            (depth <= num_pages[prompt]).then(|| tokens[(depth - 1) * size..depth * size].to_vec())
        }
    };
    let weight = |prompt: usize| weights.map_or(1.0, |weights| weights[prompt]);
    let mut order = Vec::new();
    visit((0..waiting.len()).collect(), 0, &key, &weight, &mut order);
    order
}

#[test]
fn weights_that_say_nothing_are_refused() {
    let (tree, ns) = (tree(1, PageHash::Mix), Namespace::default());
    let list = [(&[1u32][..], &ns), (&[2], &ns)];
    for weights in [&[1.0][..], &[1.0, f64::NAN], &[-1.0, 1.0], &[f64::INFINITY, 1.0]] {
        assert!(matches!(tree.prefix_order(&list, Some(weights)), Err(Error::InvalidInput(_))), "{weights:?}");
    }
}

/// Four threads insert lists, match lists and evict: every slot stays with one owner, and no match is too long.
#[test]
fn lists_beside_others_lose_no_slot() {
    const SIZE: usize = 4;
    const NUM_PAGES: i32 = 64;
    let (tree, ns) = (tree(SIZE, PageHash::Mix), Namespace::default());
    let free = Mutex::new((0..NUM_PAGES).collect::<Vec<i32>>());
    let give = |slots: &[i32]| {
        free.lock().unwrap().extend(slots.chunks_exact(SIZE).map(|page| page[0] / SIZE as i32));
    };
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (tree, ns, free, give) = (&tree, &ns, &free, &give);
            scope.spawn(move || {
                let mut state = 88_172 + thread;
                let mut next = |n: u32| {
                    state ^= state << 13;
                    state ^= state >> 17;
                    state ^= state << 5;
                    state % n
                };
                for _ in 0..400 {
                    let texts: Vec<Vec<u32>> =
                        (0..4).map(|_| (0..next(6)).flat_map(|_| [next(2); SIZE]).collect()).collect();
                    let need = texts.iter().map(|text| text.len() / SIZE).sum::<usize>();
                    let pages = {
                        let mut free = free.lock().unwrap();
                        let at = free.len().saturating_sub(need);
                        free.split_off(at)
                    };
                    let mut own: Vec<i32> =
                        pages.iter().flat_map(|&page| (0..SIZE as i32).map(move |i| page * SIZE as i32 + i)).collect();
                    if pages.len() < need {
                        give(&own);
                        own.clear();
                        tree.evict(need * SIZE, &mut own);
                        give(&own);
                        continue;
                    }
                    let mut parts: Vec<Vec<i32>> = Vec::new();
                    for text in &texts {
                        let rest = own.split_off(text.len());
                        parts.push(std::mem::replace(&mut own, rest));
                    }
                    let list: Vec<_> = texts
                        .iter()
                        .zip(&parts)
                        .map(|(text, own)| NewPrompt { tokens: text, values: own, namespace: ns, priority: 0 })
                        .collect();
                    for (done, own) in tree.insert_many(&list).unwrap().iter().zip(&parts) {
                        assert_eq!(done.length, own.len());
                        give(&own[..done.cached_len]);
                    }
                    let asked: Vec<_> = texts.iter().map(|text| (text, ns)).collect();
                    for (found, text) in tree.match_many(&asked).iter().zip(&texts) {
                        let atoms: Vec<u32> =
                            found.segments().iter().flat_map(|segment| segment.atoms().to_vec()).collect();
                        assert_eq!(atoms, text[..found.length()]);
                    }
                }
            });
        }
    });
    tree.check().unwrap();
    let mut left = free.into_inner().unwrap();
    assert_eq!(left.len() * SIZE + tree.cached_tokens(), NUM_PAGES as usize * SIZE);
    let mut out = Vec::new();
    tree.evict(usize::MAX, &mut out);
    left.extend(out.chunks_exact(SIZE).map(|page| page[0] / SIZE as i32));
    left.sort_unstable();
    assert_eq!(left, (0..NUM_PAGES).collect::<Vec<_>>());
}
