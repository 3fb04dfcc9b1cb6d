"""The pages for users of Python, run as their readers would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from harness import ROOT

#: The pages' bucket, and its name here.
BUCKET, DATA = "s3://bucket/", "s3://data/"


def blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, by its path under docs/python: the word behind `python`, and the
    code.
    """
    found = _blocks(ROOT / "docs/python" / page)
    return [(how, code.replace(BUCKET, DATA)) for how, code in found]


#: The dataset of the README's first lines.
IMAGENET = "s3://bucket/imagenet"


def readme(uri: str = IMAGENET) -> str:
    """The lines of Python in the README that open this dataset."""
    (code,) = [code for _, code in _blocks(ROOT / "README.md") if f'larder.open("{uri}")' in code]
    return code


def _blocks(path: Path) -> list[tuple[str, str]]:
    found = re.findall(
        r"^```python *([^\n]*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found, f"{path} has no code"
    return found


def run(page: str, folder: Path) -> None:
    """Runs a page in a new process in `folder`, with its blocks as one program.

    A block marked `torchrun=N` is a separate program, on N ranks. A block marked `demo` is left
    out: it needs a running demo (test_demo.py). A block marked `gpu` needs a GPU, and no test runs
    it yet.
    """
    together: list[str] = []
    for number, (how, code) in enumerate(blocks(page)):
        if how in ("demo", "gpu"):
            continue
        if how:
            ranks = how.removeprefix("torchrun=")
            launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
            _run([*launch, _program(folder, f"block{number}.py", code)], folder)
        else:
            together.append(code)
    if together:
        _run([_program(folder, "page.py", "\n".join(together))], folder)


def _program(folder: Path, name: str, code: str) -> str:
    (folder / name).write_text(code)
    return str(folder / name)


#: The error with which ranks of gloo sometimes end after all their work. torch without Larder does
#: so too (in 2 of 14 runs of a program that trains under DDP).
_TORCH_ENDS_BADLY = "terminate called without an active exception"
#: The most runs of a program that ends with it.
_RUNS_MAX = 4


def _run(arguments: list[str], folder: Path) -> None:
    for _ in range(_RUNS_MAX):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
        )
        if done.returncode == 0 or _TORCH_ENDS_BADLY not in done.stderr:
            break
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
