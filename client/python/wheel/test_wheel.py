"""The wheel as a user gets it: a fresh environment, no Rust, no daemon started by hand."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from conftest import glibc_needed
from harness import S3Server
from pages import readme

SAMPLES = 300

#: The data of the README's lines.
PRELUDE = """
import numpy
seen = []
def train(image, label):
    assert (numpy.asarray(image)[:, 0] == numpy.asarray(label) % 251).all()
    seen.extend(numpy.asarray(label).tolist())
"""


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
            needed = glibc_needed(files.read(name))
            assert needed <= int(tag[1]), f"{name} needs glibc 2.{needed}"


def test_demo_runs_from_the_wheel_alone(environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["larder", "demo", "--samples", "512", "--epochs", "1"],
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "512" in done.stdout
    assert not list(tmp_path.iterdir()), "its data goes with it"
