"""Runs the pages that need torch or Lightning."""

from __future__ import annotations

from pathlib import Path

import pytest

import pages
from harness import Node


@pytest.mark.parametrize("page", ["pytorch.md", "ddp-fsdp.md", "lightning.md"])
def test_examples_of_the_page_run(
    page: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pages.run(page, tmp_path)
