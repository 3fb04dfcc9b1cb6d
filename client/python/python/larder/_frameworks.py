"""Finds frameworks that the program has imported. Imports no framework itself, and
makes the package's classes known to JAX.

Thread rule: any thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def imported(name: str) -> Any:
    """A module if the program has imported it, else None.

    If another thread is importing it, this waits for the import: the module is incomplete until
    then.
    """
    # Neither step takes a lock that all threads share. Threads would wait for such a lock at every
    # array, and a child forked meanwhile could find it held.
    if name not in sys.modules or sys.modules[name] is None:
        return None
    return __import__(name, fromlist=("__name__",))


#: The classes that are nodes of JAX's trees, and the functions that take one apart and rebuild it.
jax_nodes: list[tuple[type, Callable[[Any], Any], Callable[[Any, Any], Any]]] = []

_registered = False


def register_with_jax() -> None:
    """Makes the classes nodes of JAX's trees, once, if the program has imported JAX.

    ``jax.jit``, ``jax.device_put`` and ``jax.tree.map`` then take them.
    """
    global _registered
    if _registered or "jax" not in sys.modules:
        return
    jax = imported("jax")
    if not hasattr(jax, "tree_util"):  # Its import has failed.
        return
    _registered = True
    for node in jax_nodes:
        jax.tree_util.register_pytree_node(*node)
