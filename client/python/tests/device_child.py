"""Runs a program of ``device_programs`` as a child, with the stand-in for the driver.

Thread rule: any thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import larder

#: A child that takes longer hangs.
HANG_SECONDS = 60


class Ended:
    """A child that has ended: its output, and the stand-in's report of it."""

    def __init__(self, process: subprocess.CompletedProcess[str], reports: list[Path]) -> None:
        assert process.returncode == 0, process.stderr
        self.said: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        self.warned = process.stderr
        self.reports = {int(path.stem): json.loads(path.read_text()) for path in reports}

    @property
    def report(self) -> dict[str, Any]:
        (report,) = self.reports.values()
        return report

    def calls(self, name: str) -> int:
        return self.report["calls"].get(name, 0)

    def check(self) -> dict[str, Any]:
        """Checks that it made no mistake and gave everything back; returns its output."""
        self.check_order()
        assert not any(self.said["left"].values()), self.said["left"]
        assert not any(self.report["left"].values())
        return self.said

    def check_order(self) -> None:
        """Checks that it made no mistake, and that child and device did not wait for each other."""
        assert self.report["mistakes"] == []
        assert self.report["counts"]["pageable_bytes"] == 0
        assert self.report["counts"]["context_waits"] == 0


def run_child(
    program: str,
    reports: Path,
    libraries: Path,
    *,
    standin: dict[str, object] | None = None,
    seconds: float = HANG_SECONDS,
    **arguments: Any,
) -> Ended:
    """Runs a program with the driver in ``libraries``, settings of the stand-in, and arguments."""
    reports.mkdir()
    tests = Path(__file__).parent
    package = Path(larder.__file__).parent.parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), str(tests)]),
        "LD_LIBRARY_PATH": str(libraries),
        "STANDIN_REPORT": str(reports / "%p.json"),
        **{f"STANDIN_{name}": str(value) for name, value in (standin or {}).items()},
    }
    ended = subprocess.run(
        [sys.executable, "-m", "device_programs", program, json.dumps(arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return Ended(ended, sorted(reports.glob("*.json")))
