"""What the client warns of, and that Python's logging hears it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

import larder

URI = "s3://data/images"


@pytest.fixture
def nobody() -> str:
    """The address of a cluster that is down."""
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return "http://{}:{}".format(*held.getsockname())


@pytest.mark.usefixtures("s3")
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


@pytest.mark.usefixtures("s3")
def test_a_program_that_sets_nothing_up_sees_it(nobody: str) -> None:
    program = f"import larder; print(len(larder.open({URI!r})))"
    environment = {**os.environ, "LARDER_CLUSTER": nobody}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr
    assert done.stderr.count("no node answers: it is read from the origin") == 1
