"""The node of this host, and nodes that a program serves to others."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from larder import _arguments, _larder

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Where the programs of the package are, in an installed wheel.
PROGRAMS = Path(__file__).parent / "bin"


def packaged_node() -> str | None:
    """Returns the path of the ``larder-node`` in the package, or None without one."""
    program = PROGRAMS / "larder-node"
    return str(program) if program.is_file() else None


def announce(dataset: _larder.Dataset) -> None:
    """Prints one line if opening the dataset started the node of this host."""
    if (started := dataset.started_node) is None:
        return
    pid, memory, log = started
    said = f"larder: started a cache of {memory} on this host (pid {pid}, log {log})"
    # The line is no reason to fail, if standard error is closed or on a full disk.
    with suppress(OSError, ValueError):
        print(said, file=sys.stderr)


class Node:
    """A node that this process started; it stops with the ``with`` block, or with the process."""

    def __init__(self, native: _larder.Node) -> None:
        self._native = native

    @property
    def address(self) -> str:
        """The address that other programs name as their cluster: ``http://host:port``."""
        return self._native.address

    @property
    def pid(self) -> int:
        """The process id of the node."""
        return self._native.pid

    def stop(self) -> None:
        """Stop the node, and wait until it has ended."""
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<larder.Node {self.address} pid {self.pid}>"


def serve(
    memory: str | None = None,
    *,
    origins: Sequence[str] | str,
    listen: str | None = None,
    args: Sequence[str] = (),
) -> Node:
    """Start a node for this program and for other programs that get its address.

    Training processes need not call this: :func:`larder.open` starts the node of the host.

    Args:
        memory: memory for shards, ``"8GiB"`` or ``"50%"`` of the available memory; by default half.
        origins: the prefixes that the node may read, such as ``["s3://bucket/data"]``; at least
            one.
        listen: ``host:port``; by default a free port that only this host reaches.
        args: further arguments of ``larder-node``.

    Raises:
        InvalidArgument: there is no origin.
        NotFound: there is no ``larder-node`` to start.
        Unavailable: the node does not start.
    """
    optional, texts = _arguments.optional, _arguments.texts
    native = _larder.Node.serve(
        optional(_arguments.text, "memory", memory, "a size such as '8GiB' or '50%'"),
        texts("origins", origins, "a list of prefixes such as 's3://bucket/data'"),
        optional(_arguments.text, "listen", listen, "host:port"),
        texts("args", args, "a list of texts"),
        packaged_node(),
    )
    return Node(native)
