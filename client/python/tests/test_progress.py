"""The progress of waits: to a function, on a terminal, and in the log."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import larder
from conftest import write_images
from harness import S3Server
from larder import _progress

#: Bounds a wait of a test.
PATIENCE = 60


class Stopped:
    """An origin that does not answer until it may."""

    def __init__(self, s3: S3Server) -> None:
        self._pid = s3.program.process.pid
        os.kill(self._pid, signal.SIGSTOP)

    def release(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


@contextmanager
def stopped(s3: S3Server) -> Iterator[Stopped]:
    origin = Stopped(s3)
    try:
        yield origin
    finally:
        origin.release()


class Follows:
    """Keeps each progress. The origin answers once this work, or this note, is seen."""

    def __init__(self, origin: Stopped, what: str, note: str = "") -> None:
        self._origin, self._what, self._note = origin, what, note
        self.seen: list[larder.Progress] = []

    def __call__(self, progress: larder.Progress) -> None:
        self.seen.append(progress)
        if progress.what == self._what and self._note in progress.note:
            self._origin.release()


def fresh(s3: S3Server, name: str, *, index: bool = True) -> str:
    """The address of a data set that no node has."""
    write_images(s3.folder / "data" / name)
    uri = f"s3://data/{name}"
    if index:
        larder.index(uri)
    return uri


def test_open_tells_its_progress_and_waits_for_the_origin(s3: S3Server) -> None:
    uri = fresh(s3, "progress-open", index=False)
    with stopped(s3) as origin:
        follows = Follows(origin, "opening")
        assert len(larder.open(uri, progress=follows)) == 300
    assert follows.seen[0].what == "opening"
    assert (follows.seen[0].total, follows.seen[0].seconds_left) == (None, None)


@pytest.mark.parametrize("cluster", [None, "none"])
def test_open_tells_why_it_waits(s3: S3Server, cluster: str | None) -> None:
    uri = fresh(s3, f"progress-why-{cluster}", index=False)
    with stopped(s3) as origin:
        follows = Follows(origin, "opening", "and waits: ")
        assert len(larder.open(uri, cluster=cluster, progress=follows)) == 300
    notes = {progress.note for progress in follows.seen if progress.note}
    store = s3.environment["AWS_ENDPOINT_URL"].removeprefix("http://")
    told = f"{store} gives no right answer: it has not answered a request"
    assert notes == {f"and waits: {told}"}
    assert str(follows.seen[-1]).endswith(told) or not follows.seen[-1].note


def test_index_tells_each_step_with_its_unit(s3: S3Server) -> None:
    uri = fresh(s3, "progress-index", index=False)
    seen: list[larder.Progress] = []
    larder.index(uri, checksum=True, progress=seen.append)
    steps = {progress.what: progress for progress in seen}
    assert list(steps) == ["listing", "indexing", "reading for checksums", "writing the manifest"]
    assert (steps["listing"].done, steps["listing"].unit) == (3, "objects")
    assert (steps["indexing"].done, steps["indexing"].total) == (3, 3)
    assert str(steps["indexing"]) == "indexing 3 of 3 files"
    read = steps["reading for checksums"]
    assert (read.done, read.unit) == (read.total, "bytes")


def test_first_batch_tells_what_it_still_needs(s3: S3Server) -> None:
    dataset = larder.open(fresh(s3, "progress-loader"))
    with stopped(s3) as origin:
        follows = Follows(origin, "filling")
        batches = iter(dataset.loader(batch_size=30, progress=follows))
        assert len(next(batches)["label"]) == 30
    filling = [progress for progress in follows.seen if progress.what == "filling"]
    data = sum(file.stat().st_size for file in (s3.folder / "data/progress-loader").iterdir())
    assert filling[0].unit == "bytes"
    assert 0 < (filling[0].total or 0) <= data
    assert re.search(r"first batch needs [0-9.]+ [KM]iB more", filling[0].note), filling[0]


def test_take_tells_what_it_still_needs(s3: S3Server) -> None:
    dataset = larder.open(fresh(s3, "progress-take"))
    with stopped(s3) as origin:
        follows = Follows(origin, "filling")
        assert len(dataset.take([5, 250], progress=follows)["label"]) == 2
    assert any("this read needs" in progress.note for progress in follows.seen)


def test_error_of_the_function_ends_the_wait(s3: S3Server) -> None:
    dataset = larder.open(fresh(s3, "progress-error"))

    def leave(_: larder.Progress) -> None:
        raise KeyError("left")

    with stopped(s3), pytest.raises(KeyError, match="left"):
        dataset.take([5], progress=leave)
    with stopped(s3), pytest.raises(KeyError, match="left"):
        next(iter(dataset.loader(batch_size=30, progress=leave)))


class Released(logging.Handler):
    """Lets the origin answer once a record of one logger is there."""

    def __init__(self, origin: Stopped, logger: str) -> None:
        super().__init__()
        self._origin, self._logger = origin, logger
        self.lines: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.setdefault(record.name, []).append(record.getMessage())
        if record.name == self._logger:
            self._origin.release()


@contextmanager
def logged(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("larder")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def test_wait_is_logged_where_there_is_no_terminal(s3: S3Server) -> None:
    dataset = larder.open(fresh(s3, "progress-log"))
    with stopped(s3) as origin, logged(handler := Released(origin, "larder.progress")):
        dataset.take([5])
    assert re.match(
        r"larder: filling 0 B of .*, this read needs ", handler.lines["larder.progress"][0]
    )


def test_progress_is_off_by_the_variable(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARDER_PROGRESS", "0")
    dataset = larder.open(fresh(s3, "progress-off"))
    with stopped(s3) as origin, logged(handler := Released(origin, "larder")):
        dataset.take([5])
    assert list(handler.lines) == ["larder"], "a long wait is still warned of"
    assert "have not come" in handler.lines["larder"][0]


ON_A_TERMINAL = """
import sys, larder
dataset = larder.open(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
dataset.take([5])
print("done", flush=True)
"""


def test_line_on_a_terminal_is_rewritten_and_removed(s3: S3Server) -> None:
    uri = fresh(s3, "progress-terminal")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL, uri]
    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=terminal, text=True)
    os.close(terminal)
    assert program.stdin is not None
    assert program.stdout is not None
    shown = ""
    try:
        assert program.stdout.readline() == "open\n"
        with stopped(s3) as origin:
            print(file=program.stdin, flush=True)
            while shown.count("this read needs") < 2:
                assert select.select([screen], [], [], PATIENCE)[0], "nothing is shown"
                shown += os.read(screen, 4096).decode()
            origin.release()
        assert program.stdout.readline() == "done\n"
        while select.select([screen], [], [], 0)[0]:
            try:
                shown += os.read(screen, 4096).decode()
            except OSError:  # the program has ended
                break
    finally:
        program.kill()
        program.communicate()
        os.close(screen)
    lines = shown[shown.index("\r") :].split("\r")
    assert all("\n" not in line for line in lines)
    assert lines[-1] == ""
    assert lines[-2].strip() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _line() -> _progress.Reporter:
    report = _progress.reporter()
    assert report is not None
    return report


FACTS = ("filling", 4, 10, "bytes", 6.0, "", "filling 4 of 10 B, 6 s left")


def test_short_wait_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    report = _line()
    report(1.9, FACTS)
    assert screen.getvalue() == ""
    report(2.0, FACTS)
    report(2.5, None)
    assert screen.getvalue() == f"\r{FACTS[-1]}\r{' ' * len(FACTS[-1])}\r"


def test_log_has_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    report = _line()
    for tenth in range(0, 250, 5):
        report(tenth / 10, FACTS)
    report(25, None)
    report(3, FACTS)
    assert [record.message for record in caplog.records] == [f"larder: {FACTS[-1]}"] * 4


def test_level_of_the_logger_turns_progress_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    report = _line()
    logging.getLogger("larder.progress").setLevel(logging.ERROR)
    try:
        report(5, FACTS)
    finally:
        logging.getLogger("larder.progress").setLevel(logging.NOTSET)
    assert screen.getvalue() == ""


def test_only_the_first_rank_of_a_host_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert _progress.reporter() is None
    assert _progress.reporter(print) is not None, "a function is called on all ranks"


def test_closed_screen_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    report = _line()
    screen.close()
    report(5, FACTS)
    report(6, None)
    monkeypatch.setattr(sys, "stderr", None)
    report(5, FACTS)


def test_threads_that_wait_at_once_each_get_their_rows(s3: S3Server) -> None:
    dataset = larder.open(fresh(s3, "progress-threads"))
    rows: list[np.ndarray] = []
    with stopped(s3) as origin:
        follows = Follows(origin, "filling")
        take = lambda: rows.append(dataset.take([5], progress=follows)["label"])  # noqa: E731
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(rows) == 4
