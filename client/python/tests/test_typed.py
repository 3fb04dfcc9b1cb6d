"""Types every command of the pages, as printed, on hosts that begin empty. Takes root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import typed
from harness import ROOT

#: Its clusters wait for the durations of membership: 40 s. It is left to `make test-full`.
SLOW = "docs/operating.md"
PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]

#: Namespaces for networks, mounts and processes: all of them end with the first process.
OWN = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.mark.parametrize("page", [p for p in PAGES if any(typed.commands(ROOT / p))])
def test_commands_of_the_page_run(page: str) -> None:
    if page == SLOW and "LARDER_TEST_FULL" not in os.environ:
        pytest.skip(f"{page} is left to make test-full")
    program = [sys.executable, str(Path(typed.__file__)), page]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [*OWN, *program], env=kept, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]
