//! Calls with a list of prompts.

use numpy::ToPyArray;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use radix_rs::{Namespace, NewPrompt};

use crate::atoms::{Atoms, each};
use crate::detach::detached;
use crate::error::{IntoPy, in_prompt, invalid};
use crate::found::{InsertResult, Match};
use crate::input::Ints;
use crate::namespace::namespace as encode;
use crate::tree::RadixTree;

/// The items of the argument called `name`, held.
fn items<'py>(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let text = object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>();
    match object.try_iter() {
        Ok(items) if !text => items.collect(),
        Err(error) if !error.is_instance_of::<PyException>(object.py()) => Err(error),
        _ => {
            Err(invalid(format!("{name} must be a list, one item for each prompt, not {}", object.get_type().name()?)))
        }
    }
}

/// As [`items`], which must be `count`.
fn as_many<'py>(name: &str, object: &Bound<'py, PyAny>, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let items = items(name, object)?;
    if items.len() != count {
        return Err(invalid(format!("{count} prompts, but {} {name}", items.len())));
    }
    Ok(items)
}

/// One namespace for all prompts, or one for each.
fn namespaces(
    count: usize,
    all: Option<&Bound<'_, PyAny>>,
    each: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Namespace>> {
    let Some(each) = each else { return Ok(vec![encode(all)?; count]) };
    if all.is_some() {
        return Err(invalid("namespace is for all prompts, namespaces for each: give one of them".to_owned()));
    }
    let one = |(i, item): (usize, &Bound<'_, PyAny>)| {
        encode(Some(item).filter(|item| !item.is_none())).map_err(|error| in_prompt(item.py(), i, error))
    };
    as_many("namespaces", each, count)?.iter().enumerate().map(one).collect()
}

fn read<'a>(prompts: &'a [Bound<'_, PyAny>]) -> PyResult<Vec<Ints<'a>>> {
    let one = |(i, prompt): (usize, &'a Bound<'_, PyAny>)| {
        Ints::one_of_many("tokens", prompt).map_err(|error| in_prompt(prompt.py(), i, error))
    };
    prompts.iter().enumerate().map(one).collect()
}

fn total(tokens: &[Ints<'_>]) -> usize {
    tokens.iter().map(Ints::len).sum()
}

#[pymethods]
impl RadixTree {
    /// Find the longest cached prefix of each prompt, as `match_prefix` would.
    ///
    /// A node that many of them pass through is looked up once.
    ///
    /// Parameters
    /// ----------
    /// prompts : list of array
    ///     Token ids of each prompt, ``[num_tokens]``.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens, for all prompts.
    /// namespaces : list, optional
    ///     Instead of ``namespace``: one for each prompt.
    ///
    /// Returns
    /// -------
    /// list of Match
    ///     In the order of the prompts; hints, as from `match_prefix`.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     An argument is no list, they are not equally long, or a prompt is what `match_prefix` refuses; ``prompt`` says
    ///     which one.
    ///
    /// Examples
    /// --------
    /// >>> tree = RadixTree()
    /// >>> _ = tree.insert([1, 2, 3], [7, 8, 9])
    /// >>> [found.length for found in tree.match_many([[1, 2, 5], [4], [1, 2, 3]])]
    /// [2, 0, 3]
    #[pyo3(signature = (prompts, namespace=None, *, namespaces=None))]
    fn match_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        namespaces: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<Match>> {
        let prompts = items("prompts", prompts)?;
        let names = self::namespaces(prompts.len(), namespace, namespaces)?;
        let tokens = read(&prompts)?;
        let list: Vec<_> = tokens.iter().zip(&names).collect();
        let total = total(&tokens);
        Ok(match &self.0 {
            Atoms::U32(tree) => {
                detached(py, total, || tree.match_many(&list)).into_iter().map(|one| Match(Atoms::U32(one))).collect()
            }
            Atoms::U64(tree) => {
                detached(py, total, || tree.match_many(&list)).into_iter().map(|one| Match(Atoms::U64(one))).collect()
            }
        })
    }

    /// Cache many prompts: as `insert` for one after the other, in the order of the list. One that is refused
    /// changes nothing.
    ///
    /// So of prompts that share something the first one's slots are kept, and the later ones report it as cached before.
    ///
    /// Parameters
    /// ----------
    /// prompts : list of array
    ///     Token ids of each prompt, ``[num_tokens]``.
    /// slots : list of array
    ///     For each prompt one slot per token, as for `insert`.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens, for all prompts.
    /// namespaces : list, optional
    ///     Instead of ``namespace``: one for each prompt.
    /// priority : int
    ///     Kept with the nodes that are made, for policies that look at it.
    ///
    /// Returns
    /// -------
    /// list of InsertResult
    ///     In the order of the prompts. ``length`` is less than the whole pages of a prompt only if others evict meanwhile
    ///     and the slots given for what was cached are no pages.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     An argument is no list, they are not equally long, or a prompt is what `insert` refuses; ``prompt`` says which
    ///     one. Nothing has changed.
    ///
    /// Examples
    /// --------
    /// >>> tree = RadixTree()
    /// >>> done = tree.insert_many([[1, 2, 3], [1, 2, 5]], [[7, 8, 9], [20, 21, 22]])
    /// >>> [one.cached_len for one in done], tree.match_prefix([1, 2, 5]).slots.tolist()
    /// ([0, 2], [7, 8, 22])
    #[pyo3(
        signature = (prompts, slots, namespace=None, *, namespaces=None, priority=0),
        text_signature = "($self, prompts, slots, namespace=None, *, namespaces=None, priority=0)"
    )]
    fn insert_many(
        &self,
        py: Python<'_>,
        prompts: &Bound<'_, PyAny>,
        slots: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        namespaces: Option<&Bound<'_, PyAny>>,
        priority: i32,
    ) -> PyResult<Vec<InsertResult>> {
        let prompts = items("prompts", prompts)?;
        // All in one piece of memory, which the allocator keeps; many small ones it would give back after each call.
        let given = as_many("slots", slots, prompts.len())?;
        let read_slots = |(i, item)| Ints::new("slots", item).map_err(|error| in_prompt(py, i, error));
        let given = given.iter().enumerate().map(read_slots).collect::<PyResult<Vec<_>>>()?;
        let (mut slots, mut ends) = (Vec::with_capacity(given.iter().map(Ints::len).sum()), vec![0]);
        for (i, ints) in given.iter().enumerate() {
            ints.add_slots(&mut slots).map_err(|error| in_prompt(py, i, error))?;
            ends.push(slots.len());
        }
        let slots: Vec<i32> = slots.into_iter().map(|slot| slot as i32).collect();
        let names = self::namespaces(prompts.len(), namespace, namespaces)?;
        let tokens = read(&prompts)?;
        let list: Vec<_> = (0..prompts.len())
            .map(|i| NewPrompt {
                tokens: &tokens[i],
                values: &slots[ends[i]..ends[i + 1]],
                namespace: &names[i],
                priority,
            })
            .collect();
        let done = detached(py, total(&tokens), || each!(&self.0, tree => tree.insert_many(&list)));
        Ok(done.py()?.into_iter().map(InsertResult::from).collect())
    }

    /// The order in which waiting prompts share most: depth first by shared prefix, heavier branches first.
    ///
    /// What a prompt leaves in the cache is then used before it can be evicted. Among branches of equal weight the one with
    /// the earliest prompt goes first, prompts with the same pages keep their order, and a prompt that others go on from comes
    /// before them.
    ///
    /// Parameters
    /// ----------
    /// prompts : list of array
    ///     Token ids of each prompt, ``[num_tokens]``.
    /// weights : list of float, optional
    ///     What each prompt weighs, at least 0. None: 1 each.
    /// namespace : str, bytes, tuple or None
    ///     What must be equal besides the tokens, for all prompts.
    /// namespaces : list, optional
    ///     Instead of ``namespace``: one for each prompt.
    /// cached_only : bool
    ///     Only what is cached counts as shared. Otherwise what prompts share counts whether it is cached yet or not, since the
    ///     first of them will bring it.
    ///
    /// Returns
    /// -------
    /// numpy.ndarray
    ///     int64 ``[num_prompts]``: the permutation; ``order[0]`` is the prompt to begin with.
    ///
    /// Raises
    /// ------
    /// InvalidInputError
    ///     As for `match_many`, or a weight is negative or not finite.
    ///
    /// Examples
    /// --------
    /// >>> RadixTree().prefix_order([[1, 2], [7, 1], [1, 3], [7, 2], [7, 1, 5]]).tolist()
    /// [1, 4, 3, 0, 2]
    #[pyo3(
        signature = (prompts, weights=None, namespace=None, *, namespaces=None, cached_only=false),
        text_signature = "($self, prompts, weights=None, namespace=None, *, namespaces=None, cached_only=False)"
    )]
    fn prefix_order<'py>(
        &self,
        py: Python<'py>,
        prompts: &Bound<'py, PyAny>,
        weights: Option<&Bound<'py, PyAny>>,
        namespace: Option<&Bound<'py, PyAny>>,
        namespaces: Option<&Bound<'py, PyAny>>,
        cached_only: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let prompts = items("prompts", prompts)?;
        let weights = weights.map(|weights| self::weights(weights, prompts.len())).transpose()?;
        let names = self::namespaces(prompts.len(), namespace, namespaces)?;
        let tokens = read(&prompts)?;
        let list: Vec<_> = tokens.iter().zip(&names).collect();
        let order = detached(py, total(&tokens), || {
            each!(&self.0, tree => match cached_only {
                true => tree.cached_prefix_order(&list, weights.as_deref()),
                false => tree.prefix_order(&list, weights.as_deref()),
            })
        });
        let order: Vec<i64> = order.py()?.into_iter().map(|prompt| prompt as i64).collect();
        Ok(order.to_pyarray(py).into_any())
    }
}

fn weights(object: &Bound<'_, PyAny>, count: usize) -> PyResult<Vec<f64>> {
    let one = |(i, item): (usize, &Bound<'_, PyAny>)| {
        item.extract::<f64>().map_err(|error| match error.is_instance_of::<PyException>(item.py()) {
            true => in_prompt(item.py(), i, invalid(format!("its weight must be a number, not {item}"))),
            false => error,
        })
    };
    as_many("weights", object, count)?.iter().enumerate().map(one).collect()
}
