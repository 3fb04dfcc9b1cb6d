"""The folder that `larder demo --keep` serves, read as its user would read it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pages
from harness import BINARIES

SAMPLES = 512

#: The data of the README's lines.
PRELUDE = """
labels = []
def train(image, label):
    assert image.shape == (256, 224, 224, 3), image.shape
    labels.extend(label.tolist())
"""

#: Every row came once, and none past the demo's nodes.
CHECK = f"""
assert sorted(labels) == list(range({SAMPLES})), len(labels)
assert larder.stats()["direct_bytes"] == 0, larder.stats()
"""


class Demo:
    """A running `larder demo --keep`, after it printed its use. Its processes are one session."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        command = [BINARIES / "larder", "--color", "never", "demo", "--keep"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--samples", str(SAMPLES), "--epochs", "1"],
                env=os.environ | {"TMPDIR": str(self.temporary)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def exports(self) -> dict[str, str]:
        """The variables in its `export` lines."""
        for _ in range(1200):
            said = self.log.read_text()
            found = dict(re.findall(r"^ *export (\w+)=(\S+)\n", said, re.MULTILINE))
            if "LARDER_CLUSTER" in found:
                return found
            assert self.process.poll() is None, said
            time.sleep(0.1)
        raise AssertionError(f"it has not said how to use it: {self.log.read_text()}")

    def left(self) -> list[int]:
        """The running processes of its session."""
        return [pid for pid in _processes() if _session(pid) == self.process.pid]

    def wait_until_gone(self) -> None:
        for _ in range(600):
            if not self.left():
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.left()} still run")

    def kill(self) -> None:
        """Ends the processes that still run, so that a failed test leaves none."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        self.process.wait(timeout=60)


def _processes() -> list[int]:
    return [int(process.name) for process in Path("/proc").glob("[0-9]*")]


def _session(pid: int) -> int | None:
    """The session of a process that runs."""
    try:
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(session)


@contextmanager
def demo() -> Iterator[Demo]:
    # Short, as the path of a socket is.
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        running = Demo(Path(folder))
        try:
            yield running
        finally:
            running.kill()


def run(program: str, exports: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | exports,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_lines_run_on_the_demo_until_interrupted() -> None:
    with demo() as running:
        exports = running.exports()
        assert len(running.left()) > 1
        lines = pages.readme().replace(pages.IMAGENET, exports["DEMO"])
        run(PRELUDE + lines + CHECK, exports)
        (block,) = [code for how, code in pages.blocks("README.md") if how == "demo"]
        run(block + CHECK, exports)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=120) == 0, running.log.read_text()
        running.wait_until_gone()
        assert list(running.temporary.iterdir()) == []
