"""Frameworks that the program uses. None is imported here: one that is not imported is not used.

Thread rule: any thread.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def imported(name: str) -> Any:
    """A module if the program has imported it, else None.

    If another thread is about to import it, this waits: until then half of it is missing.
    """
    return None if sys.modules.get(name) is None else importlib.import_module(name)
