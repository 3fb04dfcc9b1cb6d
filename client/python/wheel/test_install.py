"""The first minute of a user who has no Rust: the README's first commands, in an empty root."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import typed
from conftest import ROOT, BareRoot

#: From the start of `pip install` to the first batch. Measured: 3 s, on two cores.
FIRST_BATCH_SECONDS_MAX = 60

#: Opens a folder, and prints the first of its labels.
FIRST_BATCH = """
import larder
batch = next(iter(larder.open("file:///data").loader(batch_size=100, shuffle="none")))
print("labels", *batch["label"][:3])
"""


@pytest.fixture
def index(bare: BareRoot, wheel: Path) -> dict[str, str]:
    """An index of packages inside the root, and the variables that make pip use it alone."""
    folder = bare.folder / "index"
    version = bare.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    numpy = ["--only-binary=:all:", "--python-version", version, "--dest", folder, "numpy"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *numpy], check=True)
    shutil.copy(wheel, folder)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/index"}


def test_first_commands_of_the_readme_run_without_rust(
    bare: BareRoot, index: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    first_lines = [command for _, command in typed.commands(ROOT / "README.md")][:2]
    install, demo = (shlex.split(line, comments=True) for line in first_lines)
    assert install == ["pip", "install", "larder-cache"]
    for compiler in ("cc", "gcc", "rustc", "cargo"):
        assert not list(bare.folder.glob(f"**/bin/{compiler}"))
    bare.run("python3", "-m", "venv", "/venv")
    data = {"label": np.arange(300, dtype=np.int64)}
    (bare.folder / "data").mkdir()
    save_file(data, bare.folder / "data/part-0.safetensors")

    start = time.monotonic()
    bare.run(*install, **index)
    assert "labels 0 1 2" in bare.run("python", "-c", FIRST_BATCH)
    first = time.monotonic() - start

    start = time.monotonic()
    said = bare.run(*demo)
    assert "4096" in said or "4,096" in said, said
    demo_ran = time.monotonic() - start
    with capsys.disabled():
        print(f"\npip install to the first batch: {first:.1f} s; larder demo: {demo_ran:.1f} s")
    assert first <= FIRST_BATCH_SECONDS_MAX
