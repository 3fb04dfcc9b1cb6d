"""Faults of the node of this host: full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import larder
from test_host import nodes, wait_until_no_node_runs

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
