"""Sizes, clocks, rows and tables, for all parts of the figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import usage

GIB = 1 << 30
T = TypeVar("T")


class WrongBytes(Exception):
    """Bytes on the device, or read back from it, differ from the written bytes."""


@dataclass(frozen=True)
class Sizes:
    """Sizes and counts of the run."""

    register_bytes: int = GIB
    #: 8 GiB of images, which are registered in the background.
    images: int = 57_344
    #: Images of an epoch beside a DataLoader.
    beside: int = 16_384
    dropped: int = 2000
    rounds: int = 7

    @classmethod
    def quick(cls) -> Sizes:
        """Returns sizes that only check that everything works."""
        return cls(register_bytes=64 << 20, images=1024, beside=512, dropped=64, rounds=2)


@dataclass(frozen=True)
class Clocked:
    """Time and CPU time of one round of one way."""

    seconds: float
    #: Of this process, its children and the node.
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """A figure beside its target."""

    key: str
    what: str
    target: str
    figure: float | None
    unit: str
    verdict: str


@dataclass
class Report:
    """The output of a run. A rehearsal has no figures: it lists only the parts that worked."""

    rehearsal: bool
    said: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def table(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table as Markdown."""
        if self.rehearsal:
            print(f"rehearsed: {title}", flush=True)
            return
        _print_table(title, heads, rows)

    def part(self, key: str, said: dict[str, Any]) -> None:
        """Adds all measurements of a part to the JSON."""
        self.said[key] = {"rehearsed": True} if self.rehearsal else said

    def at_least(self, key: str, what: str, figure: float, target: float, unit: str) -> None:
        """A figure that should be as large as its target."""
        self._add(key, what, f">= {target:g}", figure, unit, passes=figure >= target)

    def at_most(self, key: str, what: str, figure: float, target: float, unit: str) -> None:
        """A figure that should be as small as its target."""
        self._add(key, what, f"<= {target:g}", figure, unit, passes=figure <= target)

    def seen(self, key: str, what: str, figure: float, unit: str) -> None:
        """A figure without a target."""
        self._add(key, what, "", figure, unit, passes=None)

    def failed(self, key: str, why: str) -> None:
        """A part without a figure."""
        self.rows.append(Row(key, why.partition("\n")[0], "", None, "", "not measured"))
        print(f"\n{key} was not measured: {why}", flush=True)

    def finish(self, folder: str | None) -> None:
        """Prints all rows, and writes the JSON where a folder is named."""
        facts = ("device", "driver", "date")
        cells = [self.said[fact] for fact in facts]
        heads = ("row", "what", "target", "figure", "", *facts)
        rows = [
            (row.key, row.what, row.target, _shown(row), row.verdict, *cells) for row in self.rows
        ]
        _print_table("Rehearsed, not measured" if self.rehearsal else "Rows", heads, rows)
        if folder:
            path = Path(folder) / "gpu.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            said = self.said | {"rehearsal": self.rehearsal, "rows": list(map(asdict, self.rows))}
            path.write_text(json.dumps(said, indent=1) + "\n")
            print(f"\nwritten to {path}")

    def _add(
        self, key: str, what: str, target: str, figure: float, unit: str, *, passes: bool | None
    ) -> None:
        verdict = "" if passes is None else "PASS" if passes else "short of target"
        row = Row(key, what, target, figure, unit, verdict)
        if self.rehearsal:
            row = Row(key, what, target, None, unit, "rehearsed")
        self.rows.append(row)


def _shown(row: Row) -> str:
    return "" if row.figure is None else f"{row.figure:.3g} {row.unit}".strip()


def _print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print(f"\n**{title}**\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        cells = (f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row)
        print(f"| {' | '.join(cells)} |", flush=True)


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Runs all ways in turns, in another order each round. Returns the results by way."""
    names = list(ways)
    said: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            said[name].append(ways[name]())
    return said


def clocked(work: Callable[[], None], node: int) -> Clocked:
    """Measures some work, with the CPU time of this process, its children and the node."""

    def cpu() -> float:
        return usage.cpu_seconds([*usage.tree(os.getpid()), node])

    cpu_before, begun = cpu(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return Clocked(seconds, cpu() - cpu_before)


def rates(amount: float, seconds: Sequence[float]) -> list[float]:
    """Median, lowest and highest of an amount a second."""
    each = [amount / one for one in seconds]
    return [median(each), min(each), max(each)]


def ratio(ours: Sequence[Clocked], theirs: Sequence[Clocked]) -> float:
    """How many times as fast ours are, round by round."""
    return median(b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True))


def fastest(rounds: Mapping[str, Sequence[Clocked]], names: Sequence[str]) -> str:
    """The way with the lowest median."""
    return min(names, key=lambda name: median(one.seconds for one in rounds[name]))


def as_json(rounds: Mapping[str, Sequence[Clocked]]) -> dict[str, list[dict[str, float]]]:
    """Rounds as the JSON has them."""
    return {name: [asdict(one) for one in each] for name, each in rounds.items()}
