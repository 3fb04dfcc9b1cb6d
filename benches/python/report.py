"""Figures as Markdown for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from contest import Result, Subject
from first_batch import Start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MIB = 1 << 20


@dataclass(frozen=True)
class Way:
    """A way to answer requests.

    Attributes:
        name: its name in the table.
        read: answers a request.
        goal: the wanted ratio of the baseline's time to its own; None for a baseline.
        beside: its baselines. Its ratio is to the best of them.
    """

    name: str
    read: Callable[[Any], Any]
    goal: float | None = None
    beside: tuple[str, ...] = ()


class Report:
    """All figures of a run. Each table is printed when it is complete."""

    def __init__(self, rounds: int, larder: Path, *, quick: bool) -> None:
        self.said: dict[str, Any] = {
            "quick": quick,
            "rounds": rounds,
            "commit": _commit(),
            "larder": str(larder),
            "machine": f"{os.cpu_count()} cores, Linux {platform.release()}",
            "python": platform.python_version(),
            "load_at_start": os.getloadavg(),
            "contests": [],
            "starts": [],
        }
        print(
            f"commit {self.said['commit']}, {self.said['machine']}, "
            f"Python {platform.python_version()}, load {_load()}; "
            f"medians of {rounds} rounds in turns\n{larder}"
        )
        if quick:
            print("--quick: it only sees that everything works; take no figure from it")

    def contest(self, subject: Subject, results: list[Result]) -> None:
        """A table. Ratios are to the baseline with the best median, round by round."""
        best = min(
            (result for result in results if result.contender.role == "baseline"), key=_seconds
        )
        rows = [_row(subject, result, best) for result in results]
        self.said["contests"].append(
            {
                "key": subject.key,
                "title": subject.title,
                "samples": subject.samples,
                "goal": subject.goal,
                "baseline": best.contender.name,
                "contenders": [
                    row | {"rounds": [asdict(one) for one in result.rounds]}
                    for row, result in zip(rows, results, strict=True)
                ],
            }
        )
        print(f"\n**{subject.title}** (goal {subject.goal} x {best.contender.name})\n")
        print(
            "| loader | samples/s | min | max | ratio | CPU us/sample | heap MiB | resident MiB |\n"
            "|---|---|---|---|---|---|---|---|"
        )
        for row in rows:
            print(
                f"| {row['name']} | {row['samples_s']:,.0f} | {row['samples_s_min']:,.0f} "
                f"| {row['samples_s_max']:,.0f} | {row['ratio']:.2f} "
                f"| {row['cpu_us_per_sample']:.1f} | {row['anonymous_bytes'] / MIB:,.0f} "
                f"| {row['resident_bytes'] / MIB:,.0f} |",
                flush=True,
            )

    def per_cpu(self, subject: Subject, results: list[Result]) -> None:
        """A table of samples a CPU second. Ratios are Larder's to each, round by round."""
        ours = next(result for result in results if result.contender.role == "larder")
        rows = []
        for result in results:
            pairs = list(zip(result.rounds, ours.rounds, strict=True))
            row = _row(subject, result, result) | {
                "ratio": median(theirs.seconds / own.seconds for theirs, own in pairs),
                "cpu_ratio": median(theirs.cpu_seconds / own.cpu_seconds for theirs, own in pairs),
                "rounds": [asdict(one) for one in result.rounds],
            }
            rows.append(row)
        self.said["contests"].append(
            {"key": subject.key, "title": subject.title, "contenders": rows}
        )
        print(f"\n**{subject.title}**, medians of {len(ours.rounds)} rounds\n")
        print(
            "| loader | samples/s | min | max | Larder is | samples per CPU second | Larder is "
            "| heap MiB | resident MiB |\n|---|---|---|---|---|---|---|---|---|"
        )
        for row in rows:
            print(
                f"| {row['name']} | {row['samples_s']:,.0f} | {row['samples_s_min']:,.0f} "
                f"| {row['samples_s_max']:,.0f} | {row['ratio']:.2f} "
                f"| {1e6 / row['cpu_us_per_sample']:,.0f} | {row['cpu_ratio']:.2f} "
                f"| {row['anonymous_bytes'] / MIB:,.0f} | {row['resident_bytes'] / MIB:,.0f} |",
                flush=True,
            )

    def rivals(self, subject: Subject, results: list[Result], goals: dict[str, float]) -> None:
        """A table of loaders that all read from one store.

        Ratios are the first of Larder to each, round by round. `goals` has the wanted ratios.
        """
        ours = next(result for result in results if result.contender.role == "larder")
        rows = [_rival_row(subject, result, ours, goals) for result in results]
        self.said["contests"].append(
            {
                "key": subject.key,
                "title": subject.title,
                "samples": subject.samples,
                "contenders": [
                    row | {"rounds": [asdict(one) for one in result.rounds]}
                    for row, result in zip(rows, results, strict=True)
                ],
            }
        )
        print(f"\n**{subject.title}**, medians of {len(ours.rounds)} rounds\n")
        print(
            "| loader | samples/s | min | max | Larder is | goal | first batch s | CPU us/sample "
            "| store CPU us/sample | requests | heap MiB | resident MiB |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|---|"
        )
        for row in rows:
            goal = row["goal"]
            short = goal is not None and row["ratio"] < goal
            ratio = f"**{row['ratio']:.2f}**" if short else f"{row['ratio']:.2f}"
            print(
                f"| {row['name']} | {row['samples_s']:,.0f} | {row['samples_s_min']:,.0f} "
                f"| {row['samples_s_max']:,.0f} | {ratio} | {goal or ''} | {row['first']:.2f} "
                f"| {row['cpu_us_per_sample']:.0f} | {row['store_cpu_us_per_sample']:.0f} "
                f"| {row['requests']:,.0f} | {row['anonymous_bytes'] / MIB:,.0f} "
                f"| {row['resident_bytes'] / MIB:,.0f} |",
                flush=True,
            )

    def requests(
        self,
        key: str,
        title: str,
        seconds: dict[str, list[list[float]]],
        ways: Sequence[Way],
        payload: int,
    ) -> None:
        """A table of single requests of `payload` bytes. Ratios are of medians, round by round."""
        middles = {name: [median(one) for one in rounds] for name, rounds in seconds.items()}
        rows = []
        for way in ways:
            own = middles[way.name]
            best = min(way.beside, key=lambda name: median(middles[name]), default=None)
            ratio = best and median(a / b for a, b in zip(middles[best], own, strict=True))
            quartiles = quantiles(own, n=4) if len(own) > 1 else [own[0]] * 3
            rows.append(
                {"name": way.name, "us": 1e6 * median(own), "gib_s": payload / median(own) / 2**30}
                | {"us_quartiles": [1e6 * quartiles[0], 1e6 * quartiles[2]]}
                | {"beside": best, "ratio": ratio, "goal": way.goal}
            )
        self.said.setdefault("requests", []).append({"key": key, "title": title, "ways": rows})
        print(f"\n**{title}**\n")
        print("| way | us | quartiles | GiB/s | ratio | to | goal |\n|---|--:|--:|--:|--:|---|--:|")
        for row in rows:
            low, high = row["us_quartiles"]
            ratio, goal = row["ratio"], row["goal"]
            short = "**" if goal and ratio < goal else ""
            cells = f"{short}{ratio:.2f}{short} | {row['beside']} | {goal:.2f}" if goal else " | | "
            print(
                f"| {row['name']} | {row['us']:,.1f} | {low:,.1f} to {high:,.1f} "
                f"| {row['gib_s']:.2f} | {cells} |",
                flush=True,
            )

    def note(self, key: str, **what: Any) -> None:
        """Adds facts beside the tables."""
        self.said.setdefault(key, []).append(what)
        print(f"{key}: " + ", ".join(f"{name} {value}" for name, value in what.items()), flush=True)

    def starts(self, key: str, title: str, starts: list[Start]) -> None:
        """A table of seconds to the first batch."""
        rows = [{"name": start.name, **_moments(start)} for start in starts]
        rounds = [start.rounds for start in starts]
        self.said["starts"].append({"key": key, "title": title, "ways": rows, "rounds": rounds})
        print(f"\n**{title}**, seconds\n")
        print("| job | imports done | opened | first batch | slowest | from open on | CPU | MiB |")
        print("|---|---|---|---|---|---|---|---|")
        for row in rows:
            cells = [row.get(name) for name in _MOMENTS]
            words = ["" if cell is None else f"{cell:.3f}" for cell in cells]
            memory = f"{row['memory'] / MIB:,.0f}" if "memory" in row else ""
            print(f"| {row['name']} | {' | '.join(words)} | {memory} |", flush=True)

    def write(self, path: Path) -> None:
        """Writes the JSON."""
        self.said["load_at_end"] = os.getloadavg()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.said, indent=1) + "\n")
        print(f"\nload at the end {_load()}; written to {path}")


_MOMENTS = ("imported", "opened", "first batch", "slowest", "from open", "cpu")


def _moments(start: Start) -> dict[str, float]:
    names = start.rounds[0]
    row = {name: median(one[name] for one in start.rounds) for name in names}
    row["slowest"] = max(one["first batch"] for one in start.rounds)
    if "imported" in names:
        row["from open"] = median(one["first batch"] - one["imported"] for one in start.rounds)
    return row


def _row(subject: Subject, result: Result, best: Result) -> dict[str, Any]:
    rates = [subject.samples / one.seconds for one in result.rounds]
    pairs = zip(result.rounds, best.rounds, strict=True)
    cpu = sum(one.cpu_seconds for one in result.rounds) / (subject.samples * len(result.rounds))
    return {
        "name": result.contender.name,
        "role": result.contender.role,
        "samples_s": median(rates),
        "samples_s_min": min(rates),
        "samples_s_max": max(rates),
        "ratio": median(theirs.seconds / own.seconds for own, theirs in pairs),
        "cpu_us_per_sample": cpu * 1e6,
        "anonymous_bytes": result.memory.anonymous,
        "resident_bytes": result.memory.resident,
    }


def _rival_row(
    subject: Subject, result: Result, ours: Result, goals: dict[str, float]
) -> dict[str, Any]:
    # `contest` divides each rate by that of the baseline; here the ratio is Larder's to each.
    row = _row(subject, result, result)
    pairs = zip(result.rounds, ours.rounds, strict=True)
    store_cpu = sum(one.store["cpu_seconds"] for one in result.rounds)
    return row | {
        "ratio": median(theirs.seconds / own.seconds for theirs, own in pairs),
        "goal": goals.get(result.contender.name),
        "first": median(one.first for one in result.rounds),
        "requests": median(one.store["requests"] for one in result.rounds),
        "store_cpu_us_per_sample": store_cpu * 1e6 / (subject.samples * len(result.rounds)),
    }


def _seconds(result: Result) -> float:
    return median(one.seconds for one in result.rounds)


def _load() -> str:
    return " ".join(f"{load:.1f}" for load in os.getloadavg())


def _commit() -> str:
    """The checked-out commit, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    said = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"
