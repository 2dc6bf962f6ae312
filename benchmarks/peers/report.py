"""Rows of a comparison, and how they are printed."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from .timing import ratio

OURS = "radix-rs"


@dataclass
class Row:
    """One measure on one input, with everybody's figure and what was asked for."""

    measure: str
    workload: str
    page: int
    leaves: int
    unit: str = "us"
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    required: str = ""
    met: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compared(row: Row, times: dict[str, list[float]]) -> Row:
    """Fill in medians, and how many times longer each peer took: the median over rounds."""
    row.figures = {name: statistics.median(spent) for name, spent in times.items()}
    ours = times[OURS]
    row.ratios = {name: ratio(spent, ours) for name, spent in times.items() if name != OURS}
    return row


def at_least(row: Row, peer: str, times: float) -> Row:
    """Ask for that many times the speed of ``peer``."""
    row.required = f">= {times:g}x {peer}"
    if peer in row.ratios:
        row.met = row.ratios[peer] >= times
    return row


def at_most(row: Row, what: str, value: float, limit: float) -> Row:
    """Ask that ``what``, a ratio of ours to something, is no more than ``limit``."""
    row.required = f"<= {limit:g} {what}"
    row.ratios[what] = value
    row.met = value <= limit
    return row


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: list[Row], peers: list[str]) -> str:
    """One line for each row and peer: ours, theirs, the ratio, what was asked for."""
    head = ("measure", "workload", "page", "leaves", "ours", "peer", "theirs", "ratio", "must", "")
    lines = [head]
    for row in rows:
        ours = f"{number(row.figures[OURS])} {row.unit}" if OURS in row.figures else ""
        place = (row.measure, row.workload, str(row.page), f"{row.leaves:,}", ours)
        names = [name for name in peers if name in row.ratios]
        names += [name for name in row.ratios if name not in peers]
        for name in names or [""]:
            theirs = f"{number(row.figures[name])} {row.unit}" if name in row.figures else ""
            asked = row.required if name and row.required.endswith(name) else ""
            met = {True: "met", False: "MISSED", None: ""}[row.met] if asked else ""
            shown = f"{number(row.ratios[name])}x" if name else ""
            lines.append((*place, name, theirs, shown, asked, met))
            place = ("", "", "", "", "")
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in (0, 1, 5, 8, 9) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
