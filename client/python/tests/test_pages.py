"""Runs the pages that need no torch."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path

import pytest

import pages
from harness import Node

#: Grain has no wheel for Python without a GIL.
NO_GRAIN = sysconfig.get_config_var("Py_GIL_DISABLED") and not importlib.util.find_spec("grain")

PAGES = [
    "README.md",
    pytest.param("jax.md", marks=pytest.mark.skipif(bool(NO_GRAIN), reason="the page needs Grain")),
    "loader.md",
    "moving-from-webdataset-and-streaming.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_page_run(
    page: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    pages.run(page, tmp_path)
