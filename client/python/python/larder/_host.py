"""The node of this host, and nodes that a program serves to others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from larder import _larder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

#: Where the programs of the package are, in an installed wheel.
PROGRAMS = Path(__file__).parent / "bin"


def packaged_node() -> str | None:
    """Return the ``larder-node`` that came with the package, if it came with one."""
    program = PROGRAMS / "larder-node"
    return str(program) if program.is_file() else None


def announce(dataset: _larder.Dataset) -> None:
    """Say in one line that opening the dataset started the node of this host."""
    if (started := dataset.started_node) is None:
        return
    pid, memory, log = started
    cache = f"a cache of {memory / 2**30:.1f} GiB on this host"
    print(f"larder: started {cache} (pid {pid}, log {log})", file=sys.stderr)


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
        """Its process id."""
        return self._native.pid

    def stop(self) -> None:
        """Stop it, and wait until it has ended."""
        self._native.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    Args:
        memory: for shards, such as ``"8GiB"`` or ``"50%"`` of available memory; by default half.
        origins: the prefixes it may read, such as ``["s3://bucket/data"]``; at least one.
        listen: ``host:port``; by default any port that only this host reaches.
        args: further arguments of ``larder-node``.

    Training processes need none of this: :func:`larder.open` starts the node of the host by itself.
    """
    origins = [origins] if isinstance(origins, str) else list(origins)
    return Node(_larder.Node.serve(memory, origins, listen, list(args), packaged_node()))
