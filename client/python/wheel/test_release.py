"""The files of `make release`, each used as its user would use it."""

from __future__ import annotations

import hashlib
import io
import platform
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from conftest import WHEELS, BareRoot, glibc_needed
from release import GLIBC, PROGRAMS, version


def files(ending: str) -> list[Path]:
    found = sorted(WHEELS.glob(ending))
    assert found, f"no {ending}: run `make release`"
    return found


def programs() -> Iterator[tuple[str, bytes]]:
    """The ELF files in all wheels and archives."""
    for wheel in files("*.whl"):
        with zipfile.ZipFile(wheel) as package:
            for name in package.namelist():
                yield f"{wheel.name}: {name}", package.read(name)
    for archive in files("larder-*.tar.gz"):
        with tarfile.open(archive) as tar:
            for member in filter(tarfile.TarInfo.isfile, tar):
                yield f"{archive.name}: {member.name}", tar.extractfile(member).read()


def test_no_file_needs_a_newer_glibc() -> None:
    found = {name: code for name, code in programs() if code.startswith(b"\x7fELF")}
    # A wheel has the native module beside the programs.
    assert len(found) == len(files("*.whl")) * (1 + 2 * len(PROGRAMS))
    needed = {name: glibc_needed(code) for name, code in found.items()}
    assert max(needed.values()) <= int(GLIBC.removeprefix("2.")), needed


def test_programs_of_the_archive_run_in_an_empty_root(bare: BareRoot) -> None:
    (archive,) = files(f"larder-*-{platform.machine()}-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(bare.folder, filter="data")
    folder = "/" + archive.name.removesuffix(".tar.gz")
    for name in PROGRAMS:
        assert bare.run(f"{folder}/{name}", "--version") == f"{name} {version()}\n"
    said = bare.run(f"{folder}/larder", "demo", "--samples", "512", "--epochs", "1")
    assert "512" in said


def test_sdist_has_all_that_a_build_needs(tmp_path: Path) -> None:
    (sdist,) = files("larder_cache-*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / sdist.name.removesuffix(".tar.gz")
    for name in ("PKG-INFO", "LICENSE-MIT", "LICENSE-APACHE", "programs/scripts/larder"):
        assert (folder / name).is_file(), name
    resolve = ["cargo", "metadata", "--offline", "--format-version", "1"]
    subprocess.run(resolve, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def test_checksums_are_those_of_all_files() -> None:
    lines = (WHEELS / "SHA256SUMS").read_text().splitlines()
    told = {name: digest for digest, name in (line.split("  ") for line in lines)}
    found = {path.name: path for path in WHEELS.iterdir() if path.name != "SHA256SUMS"}
    assert told == {
        name: hashlib.file_digest(io.BytesIO(path.read_bytes()), "sha256").hexdigest()
        for name, path in found.items()
    }
