"""What the client warns of, and that Python's logging hears it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import S3Server

URI = "s3://data/images"


@pytest.fixture
def nobody(s3: S3Server) -> str:
    """The address of a cluster that is down."""
    larder.index(URI)
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return "http://{}:{}".format(*held.getsockname())


def test_a_cluster_that_is_down_is_warned_of_once(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = larder.open(URI, cluster=nobody)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("larder", logging.WARNING)
    assert record.getMessage().startswith("no node answers: it is read from the origin")
    assert URI in record.getMessage()
    assert len(list(dataset.loader(100))) == 3
    assert caplog.records == [record]


def test_a_program_that_sets_nothing_up_sees_it(nobody: str) -> None:
    program = f"import larder; print(len(larder.open({URI!r})))"
    environment = {**os.environ, "LARDER_CLUSTER": nobody}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr
    assert done.stderr.count("no node answers: it is read from the origin") == 1


@pytest.mark.parametrize("cluster", [None, "none"])
def test_indexing_by_opening_is_said_with_what_is_left_out(
    cluster: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_file({"label": np.arange(5), "scale": np.ones(2)}, tmp_path / "a.safetensors")
    (tmp_path / "notes.txt").write_text("not a tensor")
    uri = f"file://{tmp_path}"
    dataset = larder.open(uri, cluster=cluster)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("larder", logging.WARNING)
    said = record.getMessage()
    manifest = f"{uri}/.larder/{dataset.snapshot}.manifest"
    assert said.startswith(
        f"{uri} had no manifest and was indexed now: 1 file; manifest {manifest}"
    )
    assert "tensor 'scale' of a.safetensors has 2 rows where there are 5 samples" in said
    assert "notes.txt is not of a kind that can be indexed" in said
    larder.open(uri, cluster=cluster)
    assert caplog.records == [record]
