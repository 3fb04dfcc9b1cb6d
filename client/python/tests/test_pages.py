"""The pages that need no torch do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

import pages
from harness import Node


@pytest.mark.parametrize("page", ["jax.md", "loader.md", "moving-from-webdataset-and-streaming.md"])
def test_the_page_runs(
    page: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    pages.run(page, tmp_path)
