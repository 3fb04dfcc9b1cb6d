"""Batches on their way to a GPU: what registering pages costs, and what a loader brings.

    run.sh [--quick] [--only PART ...] [--rounds N] [--data FOLDER] [--rehearse]

Prints tables; with OUT=FOLDER in the environment also writes FOLDER/gpu.json. Ends with 1 when a
byte is wrong, and with 0 and one line when there is no GPU. `--rehearse` goes through the loaders
on a machine without one, with the processor for a device, to see that everything works.

Non-goals: several GPUs, GPUs of other makers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))

import cuda
from figures import Sizes, WrongBytes
from host import own_host

PARTS = ("register", "loader", "dropped")


def main() -> int:
    """Measures what is chosen; returns the exit code."""
    arguments = _arguments()
    sizes = Sizes.quick() if arguments.quick else Sizes()
    device = "cpu" if arguments.rehearse else "cuda"
    if not arguments.rehearse and (why := cuda.missing()) is not None:
        print(f"no GPU: nothing was measured ({why})")
        return 0
    said = _introduction(device, quick=arguments.quick)
    try:
        _measure(said, device, sizes, arguments)
    except WrongBytes as wrong:
        said["wrong"] = str(wrong)
        print(f"\nWRONG BYTES: {wrong}")
    said["load_at_end"] = os.getloadavg()
    _write(said)
    return 1 if "wrong" in said else 0


def _measure(
    said: dict[str, Any], device: str, sizes: Sizes, arguments: argparse.Namespace
) -> None:
    # Not before it is known that there is a GPU: they need torch, numpy and larder.
    import dropped
    import images
    import register
    import to_device

    rounds = arguments.rounds or sizes.rounds
    if "register" in arguments.only and device == "cuda":
        said["register"] = register.measure(sizes.register_bytes, rounds)
    if not {"loader", "dropped"} & set(arguments.only):
        return
    with tempfile.TemporaryDirectory(dir=arguments.data) as name, own_host():
        folder = Path(name)
        images.write(folder, sizes.images)
        if "dropped" in arguments.only:
            said["dropped"] = dropped.measure(folder, device, sizes.dropped)
        if "loader" in arguments.only:
            said["loader"] = to_device.measure(folder, device, rounds)


def _introduction(device: str, *, quick: bool) -> dict[str, Any]:
    import torch

    import larder

    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU: a rehearsal, no figures"
    said: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "larder": larder.__version__,
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}",
        "load_at_start": os.getloadavg(),
        "quick": quick,
    }
    print(", ".join(f"{key} {value}" for key, value in said.items()))
    return said


def _write(said: dict[str, Any]) -> None:
    folder = os.environ.get("OUT")
    if folder:
        path = Path(folder) / "gpu.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(said, indent=1) + "\n")
        print(f"\nwritten to {path}")


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
        default=tempfile.gettempdir(),
        help="where 1 GB fits, in the page cache",
    )
    parser.add_argument("--rehearse", action="store_true", help="without a GPU: take no figure")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
