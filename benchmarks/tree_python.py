"""The tree from Python next to its peers: one run, the same inputs, ratios.

Needs the environment of `make peers-env`; says which peers are missing and goes on without them.
Contenders take turns round by round. A figure is a median over rounds, a ratio is the median over
rounds of the peer's time / ours, so more is faster. `--only` takes measures, `--peers` peers.

The floor of a hit is one comparison of the same tokens of the same dtype, one view per edge, and
one empty call; a hit is then measured with its views.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import evicting, hits, lasting, writing
from peers.contenders import CONTENDERS, Ours, absent, there
from peers.report import Row, table


class Options:
    """What is measured, how large, how often."""

    def __init__(self, arguments: argparse.Namespace, contenders: list[Any]) -> None:
        self.contenders = contenders
        self.leaves: list[int] = arguments.leaves
        self.pages: list[int] = arguments.page_size
        self.lengths: list[int] = arguments.tokens
        self.rounds: int = arguments.rounds
        self.full: bool = arguments.full
        self.trace: Path = arguments.trace

    def fit(self, page: int, leaves: int) -> list[Any]:
        """Return who can do pages of that size and, with ``full`` or not, so many leaves."""
        grown = 10 if self.full else 1
        return [
            one
            for one in self.contenders
            if page in one.pages and leaves <= min(one.max_leaves * grown, _most(one))
        ]


def _most(one: Any) -> int:
    return 1_000_000 if one is Ours else 100_000


MEASURES: dict[str, Callable[[Options], list[Row]]] = {
    "hit": hits.measure,
    "long": hits.measure_long,
    "insert": writing.measure,
    "lock": writing.measure_lock,
    "evict": evicting.measure,
    "tenth": evicting.measure_tenth,
    "worst": evicting.measure_worst,
    "trace": writing.measure_trace,
    "threads": lasting.measure_threads,
    "memory": lasting.measure_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--peers", nargs="+", choices=[one.name for one in CONTENDERS[1:]])
    parser.add_argument("--leaves", type=int, nargs="+", help="default: 1,000 and 10,000")
    parser.add_argument("--page-size", type=int, nargs="+", choices=[1, 16], default=[1, 16])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1_024, 2_208, 16_384, 131_072])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--full", action="store_true", help="all leaf counts up to a million")
    parser.add_argument("--trace", type=Path, default=Path("mooncake_conversation_trace.jsonl"))
    parser.add_argument("--json", type=Path, help="also write the rows there")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        lasting.memory_child(arguments.memory_of, arguments.leaves[0])
        return
    if arguments.leaves is None:
        arguments.leaves = [1_000, 10_000, *([100_000, 1_000_000] if arguments.full else [])]

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    contenders = there(say, arguments.peers)
    options = Options(arguments, contenders)
    names = [one.name for one in contenders[1:]]
    print("peers:", ", ".join(names) or "none: run `make peers-env` first")
    rows: list[Row] = []
    for name in arguments.only:
        found = MEASURES[name](options)
        rows += found
        if found:
            print(f"\n== {name}\n{table(found, names)}", flush=True)
    missed = [row for row in rows if row.met is False]
    print(f"\n{sum(row.met is True for row in rows)} met, {len(missed)} missed")
    if arguments.json:
        result = {"peers": names, "absent": absent(), "rows": [row.as_dict() for row in rows]}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
