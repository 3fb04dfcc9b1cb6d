"""Faults of the node of this host: full, silent, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import larder
from test_host import nodes, told_of_the_cache, wait_until_no_node_runs

#: Datasets that one process opens.
DATASETS = 24


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Many small datasets."""
    folders = [tmp_path / f"d{number:02}" for number in range(DATASETS)]
    for folder in folders:
        folder.mkdir()
        np.save(folder / "x.npy", np.arange(8, dtype=np.uint8))
    return [f"file://{folder}" for folder in folders]


@pytest.fixture(autouse=True)
def _own_node() -> Iterator[None]:
    wait_until_no_node_runs()
    yield
    for node in nodes():
        os.kill(node, signal.SIGKILL)
    wait_until_no_node_runs()


def files(process: int | str) -> int:
    """Return the number of open files of a process."""
    return len(os.listdir(f"/proc/{process}/fd"))


def test_datasets_of_one_process_share_a_connection(small: list[str]) -> None:
    held = [larder.open(small[0])]
    (node,) = nodes()
    here, there = files("self"), files(node)
    held += [larder.open(uri) for uri in small[1:]]
    assert files("self") - here <= DATASETS + 4, "the socket of its manifest"
    assert files(node) - there <= 4 * DATASETS + 8, "its end, the process, a manifest, a leaf"


def test_full_host_node_tells_its_reason_at_once(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "node.sh"
    program.write_text(f'#!/bin/sh\nulimit -n 80\nexec {os.environ["LARDER_NODE_BIN"]} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("LARDER_NODE_BIN", str(program))
    held = [larder.open(small[0])]
    (node,) = nodes()
    # It keeps the last 20 for operators.
    held += [larder.open(uri) for uri in small[1:] if files(node) < 68]
    assert len(held) < DATASETS
    command = [sys.executable, "-c", "import larder, sys; larder.open(sys.argv[1])", small[-1]]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    for words in "ResourceExhausted", "raise LimitNOFILE":
        assert words in other.stderr, other.stderr


@pytest.mark.usefixtures("wide")
def test_silent_host_node_is_not_called_dead(caplog: pytest.LogCaptureFixture) -> None:
    batches = iter(larder.open("s3://data/wide").loader(10, shuffle="none", output="numpy"))
    next(batches)
    (node,) = nodes()
    os.kill(node, signal.SIGSTOP)
    list(batches)
    (told,) = told_of_the_cache(caplog)
    said = re.match(r"the cache of this host \(pid (\d+), log (.+)\) does not answer: (.*)", told)
    assert said, told
    assert int(said[1]) == node
    assert Path(said[2]).exists()
    assert "memory" not in said[3]


def test_logs_of_the_last_three_starts_stay(
    small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_HOST_NODE", "logs")
    monkeypatch.setenv("LARDER_HOST_NODE_LINGER", "10ms")
    uris = small[:4]
    for uri in uris:
        ds = larder.open(uri)
        del ds
        wait_until_no_node_runs()
    folder = Path(os.environ["XDG_RUNTIME_DIR"]) / "larder"
    logs = sorted(folder.glob("host-logs-*"))
    assert [log.suffix for log in logs] == [".log", ".1", ".2"]
    told = [[uri for uri in uris if uri in log.read_text()] for log in logs]
    assert told == [[uri] for uri in uris[:0:-1]]
