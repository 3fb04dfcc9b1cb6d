"""The screens of the tool on terminals of 80 and 120 columns, as an emulator shows them."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pyte
import pytest

import larder
from harness import BINARIES, Node, S3Server

#: So wide that nothing is broken.
WIDE = 400


def screen_of(columns: int, *arguments: str) -> list[str]:
    """The lines that the tool leaves on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 100, columns, 0, 0))
    command = [BINARIES / "larder", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color"}
    nothing = subprocess.DEVNULL
    program = subprocess.Popen(
        command, stdin=nothing, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    screen = pyte.Screen(columns, 100)
    stream = pyte.ByteStream(screen)
    while data := _read(ours):
        stream.feed(data)
    program.wait()
    os.close(ours)
    return "\n".join(line.rstrip() for line in screen.display).rstrip().split("\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the program has ended
        return b""


def words(screen: list[str]) -> set[str]:
    """The words of a screen. Figures differ from one run to the next."""
    found = {word.lower() for line in screen for word in line.split()}
    return {word for word in found if not re.search("[0-9─]", word)}


@pytest.fixture(scope="module")
def indexed(s3: S3Server) -> str:
    larder.index("s3://data/images")
    return "s3://data/images"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        "doctor {uri}",
        "node ls",
        "node show",
        "ring status",
        "dataset index {uri}",
        "dataset show {uri}",
        "dataset verify {uri}",
        "dataset ls",
        "dataset ls {uri}",
        "dataset index {uri} --list",
        "explain {uri} --sample 5",
        "node show nowhere",
    ],
)
def test_screen_breaks_no_word(
    arguments: str, columns: int, indexed: str, two_nodes: list[Node]
) -> None:
    node = two_nodes[0].address
    typed = ["--cluster", node, *arguments.format(uri=indexed).split()]
    wide, narrow = screen_of(WIDE, *typed), screen_of(columns, *typed)
    # A time may have another unit in each run.
    assert words(narrow) <= words(wide) | {"µs", "ms", "s"}, "\n".join(narrow)


@pytest.mark.parametrize("columns", [80, 120])
def test_verify_leaves_its_result_alone_on_the_screen(indexed: str, columns: int) -> None:
    screen = screen_of(columns, "--cluster", "none", "dataset", "verify", indexed)
    assert screen[0].startswith("verified s3://data/images"), "\n".join(screen)


def test_node_show_needs_no_name_where_one_node_runs(
    s3: S3Server, tmp_path: Path, two_nodes: list[Node]
) -> None:
    alone = Node(tmp_path, origin="s3://data")
    try:
        screen = screen_of(80, "--cluster", alone.address, "node", "show")
    finally:
        alone.stop()
    assert screen[0].split()[:2] == ["node", tmp_path.name]
    of_two = "\n".join(screen_of(80, "--cluster", two_nodes[0].address, "node", "show"))
    assert "the ring has several nodes: name one" in of_two
    assert "far" in of_two
