"""What all parts of the figures share: sizes, clocks and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

GIB = 1 << 30


class WrongBytes(Exception):
    """Bytes on the device, or back from it, are not those that were written."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything there is."""

    register_bytes: int = GIB
    images: int = 4096
    dropped: int = 4000
    rounds: int = 9

    @classmethod
    def quick(cls) -> Sizes:
        """Enough to see that everything works."""
        return cls(register_bytes=64 << 20, images=512, dropped=64, rounds=2)


def in_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each way says in each round; they take turns, in another order each round."""
    names = list(ways)
    said: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            said[name].append(ways[name]())
    return said


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table as Markdown."""
    print(f"\n**{title}**\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        cells = (f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row)
        print(f"| {' | '.join(cells)} |", flush=True)


def rates(amount: float, seconds: Sequence[float]) -> list[float]:
    """Median, lowest and highest of an amount a second."""
    each = [amount / one for one in seconds]
    return [median(each), min(each), max(each)]
