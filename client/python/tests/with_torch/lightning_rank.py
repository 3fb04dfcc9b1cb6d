"""One rank of a Lightning job under torchrun: `lightning_rank.py CLUSTER FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_lightning import fit_as_rank

if __name__ == "__main__":
    fit_as_rank(*sys.argv[1:])
