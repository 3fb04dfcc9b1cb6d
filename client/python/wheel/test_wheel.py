"""The wheel as a user gets it: a fresh environment, no Rust, no daemon started by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "client/python/tests"))

from harness import S3Server  # noqa: E402
from pages import readme  # noqa: E402

SAMPLES = 300

#: The data of the README's lines.
PRELUDE = """
import numpy
seen = []
def train(image, label):
    assert (numpy.asarray(image)[:, 0] == numpy.asarray(label) % 251).all()
    seen.extend(numpy.asarray(label).tolist())
"""


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


def write(folder: Path) -> None:
    labels = np.arange(SAMPLES, dtype=np.int64)
    images = np.repeat((labels % 251).astype(np.uint8)[:, None], 64, axis=1)
    folder.mkdir(parents=True)
    for start in range(0, SAMPLES, 100):
        part = {"image": images[start : start + 100], "label": labels[start : start + 100]}
        save_file(part, folder / f"part-{start}.safetensors")


def run(environment: dict[str, str], script: str, **more: str) -> subprocess.CompletedProcess[str]:
    program = PRELUDE + script + f"\nassert sorted(set(seen)) == list(range({SAMPLES}))\n"
    # Its last batch is left out where it is not full.
    program = program.replace("batch_size=256", "batch_size=100")
    return subprocess.run(
        ["python", "-c", program],
        env=environment | more,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_readme_lines_run_on_a_folder(environment: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "imagenet")
    script = readme().replace("s3://bucket/imagenet", f"file://{tmp_path}/imagenet")
    done = run(environment, script)
    assert done.returncode == 0, done.stderr
    for line in (
        r"larder: started a cache of .* on this host \(pid .*\)",
        r"file://.* indexed now: .*",
    ):
        assert re.search(line, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


def test_readme_lines_run_on_a_bucket(environment: dict[str, str], tmp_path: Path) -> None:
    with S3Server(tmp_path) as s3:
        write(tmp_path / "bucket/imagenet")
        for _ in range(2):
            done = run(environment, readme(), **s3.environment)
            assert done.returncode == 0, done.stderr


def test_wheel_programs_print_their_version(environment: dict[str, str]) -> None:
    for name in ("larder", "larder-node"):
        said = subprocess.run([name, "--version"], env=environment, capture_output=True, text=True)
        assert said.stdout.startswith(f"{name} "), said


def test_wheel_is_small_and_needs_only_the_glibc_of_its_tag(wheel: Path) -> None:
    assert wheel.stat().st_size < 30 << 20, f"{wheel.stat().st_size >> 20} MiB"
    tag = re.search(r"-cp311-abi3-manylinux_2_(\d+)_", wheel.name)
    assert tag, wheel.name
    with zipfile.ZipFile(wheel) as files:
        built = [name for name in files.namelist() if re.search(r"\.so$|/bin/", name)]
        assert len(built) == 3, built
        for name in built:
            needed = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", files.read(name)))
            assert needed <= int(tag[1]), f"{name} needs glibc 2.{needed}"
