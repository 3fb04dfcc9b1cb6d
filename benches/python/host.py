"""Nodes of this host for one run only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_host() -> Iterator[None]:
    """Keeps this run from using nodes of other programs. Its nodes end soon after it."""
    os.environ.pop("LARDER_CLUSTER", None)
    os.environ.setdefault("LARDER_MEMORY", "4GiB")
    os.environ["LARDER_HOST_NODE_LINGER"] = "10s"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as run:
        os.environ["XDG_RUNTIME_DIR"] = run
        yield
