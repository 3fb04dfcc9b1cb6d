"""Runs the pages that need no torch."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

import larder
import pages
from harness import ROOT, Node

#: Grain has no wheel for Python without a GIL.
NO_GRAIN = sysconfig.get_config_var("Py_GIL_DISABLED") and not importlib.util.find_spec("grain")

#: Suffixes of files with messages.
_CODE = (".rs", ".py")

PAGES = [
    "README.md",
    pytest.param("jax.md", marks=pytest.mark.skipif(bool(NO_GRAIN), reason="the page needs Grain")),
    "loader.md",
    "moving-from-hugging-face.md",
    "moving-from-webdataset-and-streaming.md",
    "options.md",
    "random-access.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_page_run(
    page: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_CLUSTER", node.address)
    pages.run(page, tmp_path)


@pytest.mark.parametrize(
    ("title", "function"),
    [
        ("`larder.open`", larder.open),
        ("`larder.index`", larder.index),
        ("`loader`", larder.Dataset.loader),
        ("`Image`", larder.Image),
        ("`Audio`", larder.Audio),
    ],
)
def test_each_option_has_its_row(title: str, function: Callable[..., object]) -> None:
    page = (ROOT / "docs/python/options.md").read_text()
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    told = {option for row in rows for option in re.findall(r"`(\w+)`", row)}
    options = set(inspect.signature(function).parameters) - {"self"}
    assert told == options


def test_messages_of_the_page_are_those_of_the_code() -> None:
    """Each message is written in the code, but for its names and numbers."""
    page = (ROOT / "docs/python/README.md").read_text()
    section = page.partition("## What Larder tells you\n")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    assert len(messages) > 15
    folders = [ROOT / name for name in ("client/src", "client/python/python", "proto/dataset/src")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in _CODE]
    code = "".join(path.read_text() for path in files)
    code = re.sub(r'\\\n\s*|"\s*\n\s*f?"', "", code)  # strings that go on, of Rust and of Python
    for message in messages:
        for words in re.split(r"[…:;,()]+", message):
            assert words.strip() in code, f"{words!r} of {message!r}"
