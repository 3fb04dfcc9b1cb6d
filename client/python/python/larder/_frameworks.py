"""Frameworks that the program uses. None is imported here: one that is not imported is not used.

Thread rule: any thread.
"""

from __future__ import annotations

import sys
from typing import Any


def imported(name: str) -> Any:
    """A module if the program has imported it, else None.

    If another thread is about to import it, this waits: until then half of it is missing.
    """
    # Neither step takes a lock that all threads share: they would wait for each other at every
    # array, and a child forked meanwhile could find it held.
    if name not in sys.modules or sys.modules[name] is None:
        return None
    return __import__(name, fromlist=("__name__",))
