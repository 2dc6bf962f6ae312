"""The prompts that all contenders get: plain int32 arrays, the same for everybody.

Every length is a multiple of 16, so that one set serves pages of 1 and of 16. What makes a request
differ from its siblings stands first in its own part and is its number: then a tree has the edges
that the workload says, whatever the vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
VOCABULARY = 128_000
PAGE = 16


@dataclass(frozen=True)
class Request:
    """Tokens and the slots that the engine computed them into."""

    tokens: Ints
    slots: Ints


class Slots:
    """Slots that nobody had before, page by page."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> Ints:
        """Return ``count`` of them."""
        first, self.next = self.next, self.next + count
        # A slot is 31 bits wide; trees that evict may see an old number again.
        return (np.arange(first, first + count, dtype=np.int64) % (1 << 30)).astype(np.int32)


class SharedPrompt:
    """Requests behind one system prompt: ``shared`` tokens, then ``own`` ones of each."""

    def __init__(self, shared: int = 2000, own: int = 208, seed: int = 7) -> None:
        self.shared, self.own, self.seed = shared, own, seed
        self.prompt = tokens(seed, shared)
        self.slots = Slots()
        self.prompt_slots = self.slots.take(shared)

    def tokens_of(self, number: int) -> Ints:
        """Return the tokens of request ``number``."""
        own = tokens(self.seed + 1 + number, self.own)
        own[0] = number
        return np.concatenate([self.prompt, own])

    def request(self, number: int) -> Request:
        """Return request ``number`` with new slots for its own part."""
        slots = np.concatenate([self.prompt_slots, self.slots.take(self.own)])
        return Request(self.tokens_of(number), slots)


class FewShot:
    """Worked examples in front of a question: most requests have 8 of them, some fewer."""

    def __init__(self, example: int = 192, question: int = 64, seed: int = 8) -> None:
        self.example, self.question, self.seed = example, question, seed
        self.examples = tokens(seed, 8 * example)
        self.slots = Slots()
        self.example_slots = self.slots.take(8 * example)

    def request(self, number: int) -> Request:
        """Return request ``number``; every fourth one has 1, 2 or 4 examples."""
        shots = (1, 2, 4)[number // 4 % 3] if number % 4 == 3 else 8
        own = tokens(self.seed + 1 + number, self.question)
        own[0] = number
        shared = shots * self.example
        return Request(
            np.concatenate([self.examples[:shared], own]),
            np.concatenate([self.example_slots[:shared], self.slots.take(self.question)]),
        )


class Chat:
    """Conversations that share a system prompt and grow turn by turn.

    With ``forked`` every turn was also answered a second time, so that each turn is an edge of its
    own in every tree, also in one that makes edges whole again.
    """

    def __init__(
        self, system: int = 496, turn: int = 96, turns: int = 7, seed: int = 9, forked: bool = False
    ) -> None:
        self.system, self.turn, self.turns, self.seed = system, turn, turns, seed
        self.forked = forked
        self.prompt = tokens(seed, system)
        self.slots = Slots()
        self.prompt_slots = self.slots.take(system)

    def whole(self, number: int) -> Request:
        """Return conversation ``number`` after its last turn."""
        own = tokens(self.seed + 1 + number, self.turn * self.turns)
        own[0] = number
        return Request(
            np.concatenate([self.prompt, own]),
            np.concatenate([self.prompt_slots, self.slots.take(len(own))]),
        )

    def steps(self, number: int) -> Iterator[Request]:
        """Yield what the engine inserts for conversation ``number``, one request for each turn."""
        last = self.whole(number)
        for turn in range(1, self.turns + 1):
            end = self.system + turn * self.turn
            yield Request(last.tokens[:end], last.slots[:end])
            if self.forked and turn < self.turns:
                other = np.full(PAGE, VOCABULARY + number, np.int32)
                yield Request(
                    np.concatenate([last.tokens[:end], other]),
                    np.concatenate([last.slots[:end], self.slots.take(PAGE)]),
                )


def long_prompt(length: int, step: int, forked: bool, seed: int = 10) -> list[Request]:
    """Return one prompt stored in pieces of ``step`` tokens, as chunked prefill does."""
    slots = Slots()
    whole = Request(tokens(seed, length), slots.take(length))
    steps = []
    for end in range(step, length + 1, step):
        steps.append(Request(whole.tokens[:end], whole.slots[:end]))
        if forked and end < length:
            other = np.full(PAGE, VOCABULARY + 1, np.int32)
            steps.append(
                Request(
                    np.concatenate([whole.tokens[:end], other]),
                    np.concatenate([whole.slots[:end], slots.take(PAGE)]),
                )
            )
    return steps


def mooncake(path: Path, max_tokens: int) -> list[Ints]:
    """Return the first requests of a trace, blocks made out into 512 tokens that only they have."""
    requests: list[Ints] = []
    total = 0
    with path.open() as lines:
        for line in lines:
            blocks = np.array(json.loads(line)["hash_ids"], dtype=np.int64)
            total += len(blocks) * 512
            if total > max_tokens and requests:
                break
            places = np.arange(512, dtype=np.int64)
            mixed = (blocks[:, None] * 512 + places[None, :]) * 2_654_435_761
            requests.append(((mixed >> 7) % (1 << 30)).astype(np.int32).reshape(-1))
    return requests


def tokens(seed: int, count: int) -> Ints:
    """Return ``count`` tokens that depend on the seed only."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, count, dtype=np.int32)
