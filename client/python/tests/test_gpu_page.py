"""Runs the page about GPUs over the stand-in for the driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pages
from harness import Node


@pytest.mark.usefixtures("wide")
def test_page_runs_when_driver_is_the_standin(
    node: Node, standin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    pages.run("../gpu.md", tmp_path)
    said = json.loads(standin.read_text())
    assert said["mistakes_total"] == 0, said["mistakes"]
    assert said["counts"]["copies"] > 0
