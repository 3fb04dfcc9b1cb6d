"""Makes the files of a release: wheels, an sdist, archives of the programs, and their checksums.

`make release` runs it with the architectures, such as `x86_64`. zig compiles C and links, so that
the files run on a glibc that is older than the one here. `test_release.py` checks the files.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "client/python"
FILES = ROOT / "target/release-files"

#: The oldest glibc that runs the files. manylinux_2_28 is the tag of wheels for it.
GLIBC = "2.28"

#: The profile in the workspace's Cargo.toml.
PROFILE = "dist"

PROGRAMS = ("larder", "larder-node")

#: Where maturin builds. Its linker is at another path than that of the programs, so in one folder
#: each of the two builds would make Cargo begin the other one anew.
MODULE = ROOT / "target/release-module"


def main(architectures: list[str]) -> None:
    shutil.rmtree(FILES, ignore_errors=True)
    FILES.mkdir(parents=True)
    for architecture in architectures:
        programs = build_programs(architecture)
        build_wheel(architecture, programs)
        pack(FILES / f"larder-{version()}-{architecture}-linux-gnu.tar.gz", programs)
    run("maturin", "sdist", "--out", FILES)
    names = sorted(path.name for path in FILES.iterdir())
    sums = (f"{hashlib.sha256((FILES / name).read_bytes()).hexdigest()}  {name}" for name in names)
    (FILES / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sums))


def version() -> str:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return str(manifest["workspace"]["package"]["version"])


def time_of_commit() -> int:
    """The time of all files in the wheels and archives, so that two builds are alike."""
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def build_programs(architecture: str) -> list[Path]:
    target = f"{architecture}-unknown-linux-gnu"
    options = ("--locked", "--profile", PROFILE, "--target", f"{target}.{GLIBC}")
    run("cargo", "zigbuild", *options, "-p", "larder-cli", "-p", "larder-node")
    built = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / target / PROFILE
    return [built / name for name in PROGRAMS]


def build_wheel(architecture: str, programs: list[Path]) -> None:
    """Builds the wheel, and has maturin compare its symbols with those of the tag."""
    # The programs lie in the package only while a wheel is built, as in `make wheel`.
    inside = PACKAGE / "python/larder/bin"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir()
    try:
        for program in programs:
            shutil.copy(program, inside)
        options = ("--locked", "--quiet", "--profile", PROFILE, "--out", FILES)
        tag = ("--zig", "--compatibility", f"manylinux_{GLIBC.replace('.', '_')}")
        target = ("--target", f"{architecture}-unknown-linux-gnu", "--target-dir", MODULE)
        run("maturin", "build", *options, *tag, *target)
    finally:
        shutil.rmtree(inside)


def pack(archive: Path, programs: list[Path]) -> None:
    """Packs the programs and the licences in one folder."""
    folder = archive.name.removesuffix(".tar.gz")
    time = time_of_commit()

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = time
        return member

    with (
        gzip.GzipFile(archive, "wb", mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in [*programs, *sorted(ROOT.glob("LICENSE-*"))]:
            tar.add(path, f"{folder}/{path.name}", filter=plain)


def run(*command: str | Path) -> None:
    """Runs a command of Cargo or of this virtual environment, which has zig too."""
    own = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": str(time_of_commit()),
        "XDG_CACHE_HOME": str(ROOT / "target/zig"),
    }
    subprocess.run(command, cwd=PACKAGE, env=os.environ | own, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
