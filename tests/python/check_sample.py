"""Compares a sample that larder wrote as .npy with the same row read by the safetensors package itself.

  check_sample.py FOLDER TENSOR INDEX FILE.npy     FOLDER holds the .safetensors files, in the order of their names
"""

import glob
import os
import sys

import numpy as np
from safetensors import safe_open


def row_of(folder, tensor, index):
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice(tensor)
            count = rows.get_shape()[0]
            if index < count:
                return rows[index : index + 1][0]
            index -= count
    raise SystemExit(f"no sample {index} beyond the last file")


def main():
    folder, tensor, index, npy = sys.argv[1:]
    expected, got = np.asarray(row_of(folder, tensor, int(index))), np.load(npy)
    if got.dtype != expected.dtype or got.shape != expected.shape or not np.array_equal(got, expected):
        raise SystemExit(f"{tensor}[{index}] differs: {got.dtype}{got.shape} against {expected.dtype}{expected.shape}")
    print("equal")


if __name__ == "__main__":
    main()
