"""Finds frameworks that the program has imported. Imports no framework itself.

Thread rule: any thread.
"""

from __future__ import annotations

import sys
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
