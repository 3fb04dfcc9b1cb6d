"""The table of errors in docs/python/README.md and the exceptions agree."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import ROOT, Node


def table() -> dict[str, tuple[str | None, str]]:
    """For each class of the page: its builtin base, and when it is raised."""
    page = (ROOT / "docs/python/README.md").read_text()
    section = page.split("\n## Errors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| (.+) \|$", section, re.MULTILINE)
    return {name: (base or None, when) for name, base, when in rows}


def test_table_of_errors_has_every_class_and_its_base() -> None:
    classes = {
        name: found
        for name, found in vars(larder).items()
        if isinstance(found, type) and issubclass(found, larder.Error)
    }
    assert table().keys() == classes.keys()
    for name, (base, _) in table().items():
        bases = {one.__name__ for one in classes[name].__bases__} - {"Error"}
        assert bases == ({base} if base else set()), name
        assert base is None or hasattr(builtins, base)


def raised(when: str, call: object) -> str:
    """Checks that a call raises the class whose row has these words; returns its text."""
    (name,) = [name for name, (_, row) in table().items() if when in row]
    with pytest.raises(larder.Error) as caught:
        call()  # type: ignore[operator]
    assert type(caught.value).__name__ == name, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("cluster", [None, "none"])
def test_errors_are_those_of_the_table(cluster: str | None, node: Node, tmp_path: Path) -> None:
    dataset = larder.open("s3://data/images", cluster=node.address)
    raised("dataset, tag, snapshot or tensor", lambda: dataset.loader(10, tensors=["no"]))
    raised("dataset, tag, snapshot or tensor", lambda: dataset.rows(0, 1, tensors=["no"]))
    raised("dataset, tag, snapshot or tensor", lambda: larder.open("s3://data/images@no"))
    raised("makes no sense", lambda: dataset.loader(0))
    save_file({"x": np.zeros(5)}, tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"\xff" * 100)
    uri = f"file://{tmp_path}"
    raised("a file is damaged", lambda: larder.index(uri))
    said = raised("a file is damaged", lambda: larder.open(uri, cluster=cluster))
    assert "b.safetensors: " in said
    assert "no node" not in said
