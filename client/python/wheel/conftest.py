"""Users' setups: the built wheel in a fresh environment, and an empty root for it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "client/python/tests"))

#: The folder of the wheel: that of `make wheel`, or that of `make release`.
WHEELS = ROOT / os.environ.get("LARDER_TEST_WHEELS", "target/wheel")

#: Debian's Python in a root of its own, which `make` unpacks.
BARE_ROOT = ROOT / "target/bare-root"


def glibc_needed(program: bytes) -> int:
    """The version of glibc, behind its `2.`, that an ELF file names."""
    return max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", program))


class BareRoot:
    """A host with Python and its libraries: no compiler, no shell, no network. Takes root.

    Each command has processes and a network of its own. All of them end with the command.
    """

    _OWN = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    _ENTER = (
        'ip link set lo up; mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; '
        'exec chroot "$0" "$@"'
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["cp", "-a", f"{BARE_ROOT}/.", folder], check=True)
        for name in ("dev", "proc", "root", "run", "tmp"):
            (folder / name).mkdir(exist_ok=True)

    def run(self, *command: str, **more: str) -> str:
        """Runs a command that must succeed, and returns what it printed."""
        path = "/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        done = subprocess.run(
            [*self._OWN, "sh", "-ec", self._ENTER, self.folder, *command],
            env={"PATH": path, "HOME": "/root"} | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout


@pytest.fixture
def bare(tmp_path: Path) -> BareRoot:
    (tmp_path / "bare").mkdir()
    return BareRoot(tmp_path / "bare")


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The one wheel that was built for this machine."""
    (wheel,) = WHEELS.glob(f"larder_cache-*_{platform.machine()}.whl")
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
