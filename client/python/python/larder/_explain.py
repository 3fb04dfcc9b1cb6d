"""Why a training loop waits for data.

Thread rule: any thread offers batches and looks at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from larder._seconds import counting

#: Batches that are kept, as many as the native loader keeps.
_KEPT_MAX = 32
#: Batches in the text of an explanation.
_EXPLAINED = 8
#: Shorter waits are left out of the text.
_TOLD_SECONDS = 0.001


@dataclass(frozen=True)
class Explanation:
    """Why a training loop waits for data.

    Attributes:
        stats: as :meth:`Loader.stats`.
        slowest: a dict for each of the slowest batches, the slowest first. It has the numbers of
            ``epoch`` and ``batch``, the loop's wait (``waiting_seconds``) and the fetch
            (``fetching_seconds``). ``hops`` has the seconds of each kind of wait and of the
            transform. ``longest`` is the longest single wait: hop, seconds, shard and node.
        refused: why the GPU does not copy from the pages of the cache, or None.
    """

    stats: dict[str, float]
    slowest: list[dict[str, Any]]
    refused: str | None = None

    def __str__(self) -> str:
        # A loop that still waits for its first batch has spent no counted time.
        if self.stats["loop_waiting_seconds"] + self.stats["loop_using_seconds"] == 0:
            return "no batch was handed out yet"
        delayed = [batch for batch in self.slowest if batch["waiting_seconds"] >= _TOLD_SECONDS]
        lines = [*self._sums(), *map(_line, delayed[:_EXPLAINED])]
        if not delayed:
            lines.append(f"no batch was waited for {_TOLD_SECONDS} s or longer")
        return "\n".join(lines)

    def _sums(self) -> list[str]:
        stats = self.stats
        waiting, using = stats["loop_waiting_seconds"], stats["loop_using_seconds"]
        lines = [
            f"{stats['batches']:.0f} batches of {stats['samples']:.0f} samples: the loop waited "
            f"{waiting:.3f} s for them, {waiting / (waiting + using):.0%} of its time, "
            f"and used them for {using:.3f} s",
        ]
        if stats["transform_seconds"] > 0:
            lines.append(
                f"transforms worked {stats['transform_seconds']:.3f} s, and were waited for "
                f"{stats['transform_waiting_seconds']:.3f} s; for rows they waited "
                f"{stats['waiting_seconds']:.3f} s"
            )
        lines.append(
            f"fetching took {stats['fetching_seconds']:.3f} s, ahead of time or waited for"
        )
        if self.refused is not None:
            lines.append(f"copies from the pages of the cache were refused: {self.refused}")
        return lines


def _line(batch: dict[str, Any]) -> str:
    """A batch in words."""
    hops = sorted(batch["hops"].items(), key=lambda hop: -hop[1])
    told = [f"{name} {seconds:.3f} s" for name, seconds in hops if seconds >= _TOLD_SECONDS]
    line = (
        f"epoch {batch['epoch']} batch {batch['batch']}: "
        f"waited {batch['waiting_seconds']:.3f} s, "
        f"fetched in {batch['fetching_seconds']:.3f} s"
    )
    line += f" ({', '.join(told)})" if told else ""
    if batch["longest"] is not None and batch["longest"][1] >= _TOLD_SECONDS:
        hop, seconds, shard, node = batch["longest"]
        line += f"; longest {hop} {seconds:.3f} s, shard {shard}"
        line += "" if node is None else f", node {node}"
    return line


def _slowness(batch: dict[str, Any]) -> tuple[int, float]:
    """Sorts by the loop's wait in whole milliseconds, then by the time of fetch and transform."""
    took = batch["fetching_seconds"] + batch["hops"]["transform"]
    return int(batch["waiting_seconds"] * 1000), took


class Slowest:
    """The slowest transformed batches. The native loader keeps those that are not transformed."""

    def __init__(self) -> None:
        self._kept: list[dict[str, Any]] = []

    def offer(self, batch: dict[str, Any]) -> None:
        """Keeps a batch if it is one of the slowest."""
        with counting():
            if len(self._kept) == _KEPT_MAX and _slowness(self._kept[-1]) >= _slowness(batch):
                return
            kept = sorted([*self._kept, batch], key=_slowness, reverse=True)
            self._kept = kept[:_KEPT_MAX]

    def list(self) -> list[dict[str, Any]]:
        """The slowest first."""
        return list(self._kept)
