"""Shows how far the work is that a program waits for.

A line on a terminal or in a notebook is written anew at each look. Elsewhere the logger
``larder.progress`` gets a line every ten seconds. ``LARDER_PROGRESS=0`` turns both off, and so does
the logger's level. A function of the program takes the place of both.

Thread rule: a reporter belongs to the calls of one object. Two threads that wait at once write one
line in turns. Non-goals: the amounts, which the native module knows.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO, TypeAlias

#: A shorter wait is not shown.
_SHOWN_AFTER = 2.0

#: Seconds from one line of the log to the next.
_LOGGED_EVERY = 10.0

_log = logging.getLogger("larder.progress")


@dataclass(frozen=True)
class Progress:
    """How far some work is. Its text is ``filling 43 of 111 MiB at 3.1 MiB/s, 22 s left``.

    Attributes:
        what: the work in a word or a few: ``"indexing"``, ``"filling"``.
        done: the finished amount.
        total: the whole amount. None: not known.
        unit: the unit of both: ``"bytes"``, ``"files"``, ``"objects"`` or ``"samples"``.
        seconds_left: the time to the end at the present speed. None: not known.
        note: a further fact, such as what a batch still needs, or the reason of a wait.
    """

    what: str
    done: int
    total: int | None
    unit: str
    seconds_left: float | None
    note: str
    _text: str

    def __str__(self) -> str:
        return self._text


#: A function of the program.
OnProgress: TypeAlias = Callable[[Progress], object]

#: The native module calls it with the seconds waited so far, and the values of a `Progress`. None
#: for the values: the wait is over.
Reporter: TypeAlias = Callable[[float, tuple[Any, ...] | None], None]


def reporter(on_progress: OnProgress | None = None) -> Reporter | None:
    """The reporter of one call or loader. None if nothing is to be shown."""
    if on_progress is not None:
        return _Calls(on_progress)
    off = os.environ.get("LARDER_PROGRESS") == "0" or not _is_first()
    return None if off else _Line()


def _is_first() -> bool:
    """Whether this is the process of a job and a host that shows its progress."""
    torch = sys.modules.get("torch.utils.data")
    worker = None if torch is None else torch.get_worker_info()
    first_worker = worker is None or worker.id == 0
    return first_worker and os.environ.get("LOCAL_RANK", "0") == "0"


class _Calls:
    """Calls a function of the program."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress

    def __call__(self, waited: float, facts: tuple[Any, ...] | None) -> None:
        if facts is not None:
            self._on_progress(Progress(*facts))


class _Line:
    """Shows a line."""

    def __init__(self) -> None:
        #: The seconds waited at the last line of the log.
        self._logged: float | None = None

    def __call__(self, waited: float, facts: tuple[Any, ...] | None) -> None:
        if facts is None:
            self._logged = None
            clear()
        elif waited >= _SHOWN_AFTER and _log.isEnabledFor(logging.WARNING):
            self._show(waited, str(Progress(*facts)))

    def _show(self, waited: float, text: str) -> None:
        if (screen := _screen()) is not None:
            _rewrite(screen, text)
        elif self._logged is None or waited >= self._logged + _LOGGED_EVERY:
            self._logged = waited
            # A program that sets up no logging sees warnings only.
            _log.warning("larder: %s", text)


#: The length of the line on the screen.
_shown = 0


def _screen() -> TextIO | None:
    """Standard error, if a line on it can be written anew."""
    screen = sys.stderr
    if "ipykernel" in sys.modules and hasattr(screen, "pub_thread"):
        return screen
    with suppress(AttributeError, ValueError):
        if screen.isatty():
            return screen
    return None


def _rewrite(screen: TextIO, line: str) -> None:
    global _shown
    line = line[: shutil.get_terminal_size().columns - 1]
    # A closed or full screen is no reason to fail.
    with suppress(OSError, ValueError):
        screen.write("\r" + line.ljust(_shown))
        screen.flush()
        _shown = len(line)


def clear() -> None:
    """Removes the line from the screen."""
    if _shown and (screen := _screen()) is not None:
        _rewrite(screen, "")
        with suppress(OSError, ValueError):
            screen.write("\r")
            screen.flush()
