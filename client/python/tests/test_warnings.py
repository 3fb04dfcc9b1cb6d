"""The client's warnings reach Python's logging."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import larder
from harness import BINARIES, Node, S3Server

URI = "s3://data/images"


@pytest.fixture
def nobody(s3: S3Server) -> str:
    """The address of a cluster that is down."""
    larder.index(URI)
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return "http://{}:{}".format(*held.getsockname())


def test_unreachable_cluster_is_warned_of_once(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = larder.open(URI, cluster=nobody)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("larder", logging.WARNING)
    assert record.getMessage().startswith("no node answers: it is read from the origin")
    assert URI in record.getMessage()
    assert len(list(dataset.loader(100))) == 3
    assert caplog.records == [record]


def test_warning_is_shown_without_logging_setup(nobody: str) -> None:
    program = f"import larder; print(len(larder.open({URI!r})))"
    environment = {**os.environ, "LARDER_CLUSTER": nobody}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "300\n"), done.stderr
    assert done.stderr.count("no node answers: it is read from the origin") == 1


@pytest.mark.usefixtures("s3")
def test_blocked_data_port_is_warned_of_once_and_found_by_doctor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    larder.index(URI)
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        port = "{}:{}".format(*held.getsockname())
        node = Node(tmp_path, origin="s3://data", more=["--data-advertise", port])
        try:
            dataset = larder.open(URI, cluster=node.address, local=False)
            deadline = time.monotonic() + 60
            while not told(caplog, port) and time.monotonic() < deadline:
                assert len(list(dataset.loader(100))) == 3
            assert len(told(caplog, port)) == 1
            assert f"its data port {port} can't be reached from here" in told(caplog, port)[0]
            tool = [BINARIES / "larder", "doctor", "--cluster", node.address]
            found = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=False)
            assert f"1 of 1 data port can't be reached from here: {tmp_path.name} at {port}" in (
                found.stdout
            )
        finally:
            node.stop()


def told(caplog: pytest.LogCaptureFixture, port: str) -> list[str]:
    """The warnings that name both ports."""
    said = (record.getMessage() for record in caplog.records)
    return [line for line in said if "answers at" in line and port in line]


@pytest.mark.parametrize("cluster", [None, "none"])
def test_open_that_indexes_warns_of_left_out_files(
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
        f"{uri} had no manifest and was indexed now: 5 samples (label int64)"
        f" from 1 file; manifest {manifest}"
    )
    assert "tensor 'scale' of a.safetensors has 2 rows where there are 5 samples" in said
    assert "notes.txt is not of a kind that can be indexed" in said
    larder.open(uri, cluster=cluster)
    assert caplog.records == [record]


@pytest.mark.parametrize("cluster", [None, "none"])
def test_first_open_warns_if_each_file_may_be_one_sample(
    cluster: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("train", "val"):
        (tmp_path / folder).mkdir()
        for number in range(5):
            np.save(tmp_path / folder / f"img_{number}.npy", np.zeros((16, 16, 3), np.uint8))
    uri = f"file://{tmp_path}"
    assert len(larder.open(uri, cluster=cluster)) == 160
    formed, warned = (record.getMessage() for record in caplog.records)
    assert (
        "160 samples (img uint8 [16,3]) from 10 files of 16 rows each in 2 folders: train/, val/;"
        in formed
    )
    assert warned == (
        f"{uri}: each file may be one sample: 10 files like train/img_0.npy hold [16,16,3], and the"
        " first dimension counts samples, so that each has 16; if each file is one sample, index"
        ' with sample="file"'
    )
    larder.open(uri, cluster=cluster)
    assert len(caplog.records) == 2


def test_open_warns_of_objects_added_after_the_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {"label": np.arange(5)}
    save_file(rows, tmp_path / "a.safetensors")
    save_file({"other": np.arange(3)}, tmp_path / "z.safetensors")
    uri = f"file://{tmp_path}"
    larder.index(uri)
    save_file(rows, tmp_path / "b.safetensors")
    said = (
        f"1 object was added under {uri} after it was indexed; to include new objects:"
        f' larder.index("{uri}")'
    )

    dataset = larder.open(uri, cluster="none")
    deadline = time.monotonic() + 60
    while not caplog.records and time.monotonic() < deadline:
        next(iter(dataset.loader(5)))
    assert [record.getMessage() for record in caplog.records] == [said]


class _Slow(BaseHTTPRequestHandler):
    """An S3 server without objects that answers slowly."""

    def do_GET(self) -> None:
        time.sleep(6)
        self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("cluster", [None, "none"])
def test_slow_open_is_told(
    cluster: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
            monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
            monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
            with pytest.raises(larder.Error):
                larder.open("s3://data/slow", cluster=cluster)
        finally:
            server.shutdown()
            thread.join()
    told = {name: message for name, _, message in caplog.record_tuples}
    store = f"127.0.0.1:{server.server_port}"
    waits = f"{store} gives no right answer: it has not answered a request"
    # The reason is not known yet if the node has only just started.
    opening = "larder: opening"
    assert told["larder.progress"] in {opening, f"{opening}, and waits: {waits}"}


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings since the last call."""
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


@pytest.mark.usefixtures("wide")
def test_data_beyond_the_memory_is_told_once_a_loader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LARDER_HOST_NODE", "small")
    monkeypatch.setenv("LARDER_MEMORY", "12MiB")
    dataset = larder.open("s3://data/wide")
    caplog.clear()
    loader = dataset.loader(30)
    told = (
        "the data (19 MiB) does not fit the cache of this host (12 MiB): each epoch reads the "
        "rest from the origin; {}LARDER_MEMORY=24MiB would hold it all from the cache's next start"
    )
    assert warned(caplog) == [told.format("shuffle 'auto' is 'window:1'; ")]
    read = []
    for _ in range(3):
        assert len(list(loader)) == 10
        read.append(loader.stats()["origin_bytes"])
    image = 1 << 16
    assert read[0] >= 300 * image
    # The rows that do not fit. On a busy machine more come from the origin, but none twice.
    assert (300 - 192) * image <= read[2] - read[1] <= 300 * image
    dataset.loader(30, rank=1, world_size=2)
    assert warned(caplog) == []
    dataset.loader(30, shuffle="global")
    assert warned(caplog) == [told.format("")]


@pytest.mark.usefixtures("s3")
def test_dropped_samples_of_unshuffled_epochs_are_told(caplog: pytest.LogCaptureFixture) -> None:
    dataset = larder.open(URI)
    caplog.clear()
    dataset.loader(125, shuffle=False)
    assert warned(caplog) == [
        "each epoch drops the last 50 of 300 samples, which do not fill a batch of 125: say "
        "last='uneven' to get them, or last='drop' to be told nothing"
    ]
    dataset.loader(64, shuffle="none", rank=0, world_size=2)
    assert warned(caplog) == [
        "each epoch drops the last 44 of 300 samples, which do not fill a batch of 128: say "
        "last='pad', or 'uneven' without DDP, to get them, or last='drop' to be told nothing"
    ]
    dataset.loader(64, shuffle="none", rank=1, world_size=2)
    dataset.loader(125, shuffle="none", last="drop")
    dataset.loader(125, shuffle="none", last="uneven")
    dataset.loader(100, shuffle="none")
    dataset.loader(125, shuffle="global")
    assert warned(caplog) == []
