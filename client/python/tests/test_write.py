"""Prefixes that must not be written: the manifest goes to the user's cache folder."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import larder
from conftest import all_images, write_images
from harness import BINARIES, Node, S3Server
from test_host import wait_until_no_node_runs


@pytest.fixture
def folder(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of ``s3://data/unwritten``, which has no manifest. The cache is empty."""
    # A node that runs would have another cache folder.
    wait_until_no_node_runs()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = s3.folder / "data" / "unwritten"
    shutil.rmtree(folder, ignore_errors=True)
    write_images(folder)
    return folder


URI = "s3://data/unwritten"


def cached(tmp_path: Path, kind: str = "tags/*") -> list[Path]:
    return list((tmp_path / "cache/larder").glob(f"*/{kind}"))


def check_rows(ds: larder.Dataset) -> None:
    rows = ds.take([7, 250], output="numpy")
    np.testing.assert_array_equal(rows["image"], all_images()["image"][[7, 250]])


@pytest.mark.parametrize("way", ["host node", "node", "origin"])
def test_open_writes_to_the_cache_and_says_so(
    folder: Path,
    tmp_path: Path,
    start_node: Callable[..., Node],
    caplog: pytest.LogCaptureFixture,
    way: str,
) -> None:
    cluster = {"host node": lambda: None, "node": lambda: start_node().address}
    cluster = cluster.get(way, lambda: "none")()
    check_rows(larder.open(URI, cluster=cluster, write="never"))
    assert not (folder / ".larder").exists()
    (manifest,) = cached(tmp_path, "*.manifest")
    assert f"manifest file://{manifest}" in caplog.text
    caplog.clear()
    # The manifest is found there again, also by those that may write.
    check_rows(larder.open(URI, cluster=cluster))
    assert "indexed now" not in caplog.text
    assert not (folder / ".larder").exists()


@pytest.mark.parametrize("named", ["prefix", "files"])
def test_the_variable_counts_unless_the_argument_says_otherwise(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    uri = URI if named == "prefix" else f"{URI}/part-{{00000..00002}}.safetensors"
    monkeypatch.setenv("LARDER_WRITE", "never")
    check_rows(larder.open(uri))
    assert not (folder / ".larder").exists()
    shutil.rmtree(tmp_path / "cache")
    check_rows(larder.open(uri, write="auto"))
    assert (folder / ".larder").exists()
    assert not cached(tmp_path)


def test_the_variable_of_a_node_counts_for_its_indexes(
    folder: Path, start_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARDER_WRITE", "never")
    node = start_node()
    monkeypatch.delenv("LARDER_WRITE")
    check_rows(larder.open(URI, cluster=node.address, write="auto"))
    assert not (folder / ".larder").exists()


def test_index_with_keys_and_checksums_writes_to_the_cache(folder: Path, tmp_path: Path) -> None:
    larder.index(URI, write="never", checksum=True, key="label", tag="v1")
    assert not (folder / ".larder").exists()
    assert len(cached(tmp_path)) == 2
    assert cached(tmp_path, "checksums/*")
    ds = larder.open(f"{URI}@v1")
    assert ds.positions([200, 3]).tolist() == [200, 3]
    check_rows(ds)


def test_index_that_opens_would_not_find_is_refused(folder: Path, tmp_path: Path) -> None:
    larder.index(URI)
    same = larder.index(URI, write="never")
    assert len(larder.open(URI)) == same.samples
    with pytest.raises(larder.InvalidArgument) as raised:
        larder.index(URI, write="never", include="part-00000*")
    assert "names another snapshot" in str(raised.value)
    assert "manifest=" in str(raised.value.hint)
    given = larder.index(
        URI, write="never", include="part-00000*", manifest=f"file://{tmp_path}/own"
    )
    assert given.samples == 100


def test_other_values_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (larder.open, larder.index):
        with pytest.raises(larder.InvalidArgument, match="write is 'sometimes'"):
            call(URI, write="sometimes")
    monkeypatch.setenv("LARDER_WRITE", "sometimes")
    for call in (larder.open, larder.index):
        with pytest.raises(larder.InvalidArgument, match=r"LARDER_WRITE.*'sometimes' is not known"):
            call(URI)
    assert not (folder / ".larder").exists()


def test_commands_write_to_the_cache(folder: Path, tmp_path: Path) -> None:
    def tool(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BINARIES / "larder", "--cluster", "none", "-o", "json", "dataset", *words],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
        )

    shown = tool("show", URI, LARDER_WRITE="never")
    assert "manifest file://" in shown.stderr
    assert not (folder / ".larder").exists()
    shutil.rmtree(tmp_path / "cache")
    indexed = tool("index", URI, "--write", "never")
    assert "other hosts do not see" in indexed.stderr
    assert json.loads(indexed.stdout)["samples"] == 300
    assert not (folder / ".larder").exists()
    assert len(cached(tmp_path)) == 1


def test_without_a_cache_folder_the_manifest_is_in_that_of_the_run(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "cache").write_text("no folder")
    check_rows(larder.open(URI, cluster="none", write="never"))
    assert not (folder / ".larder").exists()
    assert "temporary folder" in caplog.text
