"""Draw docs/figures/reuse.svg from one run of `radix-rs demo`: what every answer had to compute.

One bar per prompt, its length in tokens, split into what came from the cache and what did not.
Only counts are drawn, so two runs give the same picture.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

from radix_rs import SamplingParams
from radix_rs.cli import demo_view
from radix_rs.cli.demo import Run, play
from radix_rs.cli.opening import open_llm
from radix_rs.cli.story import TALKS

TARGET = Path(__file__).parents[1] / "docs" / "figures" / "reuse.svg"
WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 760, 222, 96, 66, 26, 16
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.quiet { fill: #59636e } .title { font-weight: 600; font-size: 15px }
.cached { fill: #8ecae6 } .computed { fill: #d1495b }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 }
  .cached { fill: #2b6d8c } .computed { fill: #f0788a }
}
"""


def prompts(run: Run) -> list[tuple[str, int, int]]:
    """Return question, tokens of the prompt and how many of them were cached, in order."""
    return [
        (talk.turns[turn], answer.usage.prompt_tokens, answer.usage.cached_tokens)
        for turn, answers in enumerate(run.answers)
        for talk, answer in zip(TALKS, answers, strict=True)
    ]


def draw(rows: list[tuple[str, int, int]]) -> str:
    """Return the picture as SVG; it follows the reader's light or dark theme."""
    total = sum(tokens for _, tokens, _ in rows)
    computed = sum(tokens - cached for _, tokens, cached in rows)
    scale = (WIDTH - LEFT - RIGHT) / max(tokens for _, tokens, _ in rows)
    height = TOP + STEP * len(rows) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{total:,} prompt tokens, {computed:,} computed</title><style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{len(rows)} prompts, {total:,} tokens: '
        f"{computed:,} computed, the others reused (prompts only)</text>",
        f'<rect class="computed" x="{LEFT}" y="38" width="10" height="10"/>',
        f'<text class="quiet" x="{LEFT + 16}" y="48">computed</text>',
        f'<rect class="cached" x="{LEFT + 96}" y="38" width="10" height="10"/>',
        f'<text class="quiet" x="{LEFT + 112}" y="48">from the cache</text>',
        f'<text class="quiet" x="{WIDTH - RIGHT + 10}" y="48">computed</text>',
    ]
    for index, (question, tokens, cached) in enumerate(rows):
        y = TOP + STEP * index
        middle = LEFT + cached * scale
        parts += [
            f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(question)}</text>',
            f'<rect class="cached" x="{LEFT}" y="{y}" '
            f'width="{cached * scale:.1f}" height="{BAR}"/>',
            f'<rect class="computed" x="{middle:.1f}" y="{y}" '
            f'width="{max(2.0, (tokens - cached) * scale):.1f}" height="{BAR}"/>',
            f'<text class="quiet" x="{WIDTH - RIGHT + 10}" y="{y + 13}">{tokens - cached:,}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name}")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    with open_llm(None, dtype="float32", num_slots=16_384) as llm:
        params = SamplingParams(temperature=0.0)
        rows = prompts(play(llm, TALKS, params, demo_view.Silent()))
    if arguments.write:
        TARGET.write_text(draw(rows), encoding="utf-8")
    if arguments.json:
        keys = ("question", "prompt_tokens", "cached_tokens")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=2))
        return
    for question, tokens, cached in rows:
        print(f"{question:<34}{tokens:>7,} tokens{tokens - cached:>7,} computed")


if __name__ == "__main__":
    main()
