"""Batches on their way to a GPU: the cost of registering pages, and the rate of a loader.

    run.sh [--quick] [--only PART ...] [--rounds N] [--data FOLDER] [--standin LIBRARY]

Prints tables, and a row for each figure beside its target; with OUT=FOLDER in the environment also
writes FOLDER/gpu.json. Ends with 1 when a byte is wrong, and with 0 and one line when there is no
GPU. `--standin` goes through all parts over the stand-in for the driver, without a GPU and without
torch: it takes no figure.

Non-goals: several GPUs, GPUs of other makers.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import cuda
from figures import GIB, Report, Sizes, WrongBytes
from host import own_host

if TYPE_CHECKING:
    from gpu import Gpu

PARTS = ("register", "staged", "direct", "loader", "step", "first", "dropped")
#: No part begins later than this, so that a run ends within nine minutes.
_BEGIN_SECONDS = 420
#: Set in the process that has the stand-in for its driver.
_OVER_STANDIN = "LARDER_GPU_OVER_STANDIN"
#: No mistake: the part `register` also copies from memory that is not registered, to compare.
_MEANT = "source is not page-locked"


def main() -> int:
    """Measures the chosen parts. Returns the exit code."""
    arguments = _arguments()
    if arguments.standin is not None and _OVER_STANDIN not in os.environ:
        return _over_standin(arguments.standin)
    rehearsal = arguments.standin is not None
    if (why := _missing(rehearsal=rehearsal)) is not None:
        print(f"nothing was measured: {why}")
        return 0
    sizes = Sizes.quick() if arguments.quick or rehearsal else Sizes()
    report = _introduction(rehearsal=rehearsal, quick=arguments.quick)
    code = 0
    try:
        _measure(report, sizes, arguments)
    except WrongBytes as wrong:
        report.said["wrong"] = str(wrong)
        print(f"\nWRONG BYTES: {wrong}")
        code = 1
    report.said["load_at_end"] = os.getloadavg()
    report.finish(os.environ.get("OUT"))
    return code


def _measure(report: Report, sizes: Sizes, arguments: argparse.Namespace) -> None:
    # Imported only once there is a GPU: they need numpy and larder.
    import early
    import images
    import loaders
    import register
    import step
    import ways

    import larder

    begun = time.monotonic()
    gpu, rounds = _gpu(rehearsal=report.rehearsal), arguments.rounds or sizes.rounds
    need = 2 * sizes.images * images.SAMPLE_BYTES
    with tempfile.TemporaryDirectory(dir=arguments.data or _room_for(need)) as name, own_host():
        folder = Path(name)
        # The whole dataset, and a quarter more.
        os.environ["LARDER_MEMORY"] = f"{sizes.images * images.SAMPLE_BYTES * 5 // 4 + GIB}"
        parts: dict[str, Callable[[], None]] = {
            "register": lambda: register.measure(
                report, gpu.driver, sizes.register_bytes, max(2, rounds)
            )
        }
        if set(arguments.only) != {"register"}:
            images.write(folder, sizes.images)
            written, uri = images.images(folder), images.uri(folder)
            dataset = larder.open(uri)
            epochs = 2 * (sizes.images // images.BATCH)
            parts |= {
                "staged": lambda: ways.staged(report, gpu, dataset, written, rounds),
                "direct": lambda: ways.direct(report, gpu, dataset, written, rounds),
                "step": lambda: step.measure(report, gpu, dataset, written, rounds),
                "first": lambda: early.measure(report, uri, epochs, min(rounds, 5)),
                "loader": lambda: loaders.measure(
                    report, gpu, dataset, folder, sizes.beside, min(rounds, 5)
                ),
                "dropped": lambda: _dropped(report, gpu, folder, sizes),
            }
        for part in PARTS:
            if part in arguments.only:
                _part(report, part, parts[part], begun)


def _part(report: Report, key: str, measure: Callable[[], None], begun: float) -> None:
    """Measures one part. If it fails, the others are still measured."""
    if time.monotonic() - begun > _BEGIN_SECONDS:
        report.failed(key, "the time of a run was used up; choose it by --only")
        return
    at = time.monotonic()
    try:
        measure()
    except WrongBytes:
        raise
    except Exception as error:
        traceback.print_exc()
        report.failed(key, f"{type(error).__name__}: {error}")
    print(f"\n{key}: {time.monotonic() - at:.0f} s", flush=True)


def _dropped(report: Report, gpu: Gpu, folder: Path, sizes: Sizes) -> None:
    from gpu import ByTorch

    if not isinstance(gpu, ByTorch):
        print("not rehearsed: dropped batches need torch and a GPU")
        return
    import dropped

    dropped.measure(report, gpu, folder, sizes.beside, sizes.dropped)


def _gpu(*, rehearsal: bool) -> Gpu:
    from gpu import ByStandin, ByTorch

    return ByStandin() if rehearsal else ByTorch()


def _missing(*, rehearsal: bool) -> str | None:
    """Returns why nothing can be measured here, or `None`."""
    try:
        name = cuda.Driver().name()
    except (OSError, cuda.CudaError) as error:
        return f"no GPU ({error})"
    if rehearsal:
        return None if name == cuda.STANDIN else f"--standin, but the driver's device is {name}"
    if name == cuda.STANDIN:
        return "the driver is the stand-in for tests, which has no speed: say --standin"
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "torch finds no GPU"


def _introduction(*, rehearsal: bool, quick: bool) -> Report:
    import larder

    driver = cuda.Driver()
    said = {
        "device": driver.name(),
        "driver": f"{_driver_version()}{driver.version()}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "larder": larder.__version__,
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}",
        "load_at_start": os.getloadavg(),
        "quick": quick,
    }
    if not rehearsal:
        import torch

        said["torch"] = torch.__version__
    print(", ".join(f"{key} {value}" for key, value in said.items()))
    if rehearsal or quick:
        print("only to see that everything works: take no figure from it")
    return Report(rehearsal, dict(said))


def _driver_version() -> str:
    """Returns the version of the kernel module, in NVIDIA's numbering of drivers."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip() + ", "
    except OSError:
        return ""


def _room_for(size: int) -> str:
    """Returns /dev/shm if the data fits there, else the folder for temporary files."""
    shared = "/dev/shm"
    try:
        return shared if shutil.disk_usage(shared).free >= size else tempfile.gettempdir()
    except OSError:
        return tempfile.gettempdir()


def _over_standin(library: Path) -> int:
    """Runs all of this again in a process that has the stand-in as its driver."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("libcuda.so", "libcuda.so.1"):
            (Path(folder) / name).symlink_to(library.resolve(strict=True))
        settings = {
            "LD_LIBRARY_PATH": folder,
            "STANDIN_REPORT": f"{folder}/%p.json",
            _OVER_STANDIN: "1",
        }
        done = subprocess.run([sys.executable, *sys.argv], env={**os.environ, **settings})
        said = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    found = [mistake for report in said for mistake in report["mistakes"]]
    mistakes = [mistake for mistake in found if mistake["kind"] != _MEANT]
    print(f"mistakes that the stand-in found in {len(said)} processes: {len(mistakes)}")
    print(*mistakes, sep="\n")
    return done.returncode or int(len(mistakes) > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--data",
        type=Path,
        help="where 9 GB fit, in memory; by default /dev/shm, or the folder for temporary files",
    )
    parser.add_argument(
        "--standin",
        type=Path,
        metavar="LIBRARY",
        help="without a GPU, over liblarder_cuda_standin.so: takes no figure",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
