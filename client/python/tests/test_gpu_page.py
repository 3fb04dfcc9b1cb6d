"""Runs the page about GPUs over the stand-in for the driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pages
from harness import BINARIES, Node


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the stand-in the driver of child processes. Returns the path of its report."""
    library = BINARIES / "liblarder_cuda_standin.so"
    assert library.exists(), f"{library} is missing: run `make python` first"
    folder = tmp_path / "driver"
    folder.mkdir()
    for name in ("libcuda.so", "libcuda.so.1"):
        (folder / name).symlink_to(library)
    path = tmp_path / "standin.json"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("STANDIN_REPORT", str(path))
    return path


@pytest.mark.usefixtures("wide")
def test_page_runs_when_driver_is_the_standin(
    node: Node, report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    pages.run("../gpu.md", tmp_path)
    said = json.loads(report.read_text())
    assert said["mistakes_total"] == 0, said["mistakes"]
    assert said["counts"]["copies"] > 0
