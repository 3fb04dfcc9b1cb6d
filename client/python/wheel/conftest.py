"""A user's setup: the built wheel in a fresh environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "client/python/tests"))


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The one wheel that was built."""
    (wheel,) = (ROOT / "target/wheel").glob("larder-*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A user's setup: a new virtual environment with the wheel, and no compiler."""
    folder, run = tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("run")
    run.chmod(0o700)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True)
    own = ("CARGO", "RUST", "LARDER", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return kept | {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "XDG_RUNTIME_DIR": str(run),
        "LARDER_MEMORY": "256MiB",
        "LARDER_HOST_NODE_LINGER": "1s",
    }
