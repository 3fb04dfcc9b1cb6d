"""Writes test data with the formats' own packages and prints what each row must be, as JSON.

  write_dataset.py FOLDER images FILES ROWS SHAPE     safetensors: image u8[ROWS, *SHAPE], label i64[ROWS]
  write_dataset.py FOLDER tokens COUNT                tokens.bin: u16[COUNT]
  write_dataset.py FOLDER words FILES ROWS WORDS      safetensors: words u32[ROWS, WORDS], each a function of its place
  write_dataset.py FOLDER tars FILES ROWS LEAST MOST  tars: members .bin of LEAST to MOST bytes, and .cls
"""

import io
import json
import os
import sys
import tarfile
import zlib

import numpy as np
from safetensors.numpy import save_file


def images(folder, files, rows, shape):
    rng = np.random.default_rng(7)
    crcs = {"image": [], "label": []}
    for index in range(files):
        image = rng.integers(0, 256, size=(rows, *shape), dtype=np.uint8)
        label = np.arange(index * rows, (index + 1) * rows, dtype=np.int64)
        save_file({"image": image, "label": label}, os.path.join(folder, f"part-{index:05d}.safetensors"))
        crcs["image"] += [zlib.crc32(row.tobytes()) for row in image]
        crcs["label"] += [zlib.crc32(row.tobytes()) for row in label]
    return {"samples": files * rows, "rows": crcs}


def tokens(folder, count):
    data = np.random.default_rng(8).integers(0, 50_000, size=count, dtype=np.uint16)
    data.tofile(os.path.join(folder, "tokens.bin"))
    return {"samples": count, "rows": {"tokens": [zlib.crc32(data.tobytes())]}}


def words(folder, files, rows, words):
    columns = np.arange(words, dtype=np.uint32) * np.uint32(40503)
    for index in range(files):
        samples = np.arange(index * rows, (index + 1) * rows, dtype=np.uint32) * np.uint32(2654435761)
        save_file({"words": samples[:, None] + columns}, os.path.join(folder, f"part-{index:05d}.safetensors"))
    return {"samples": files * rows}


def tars(folder, files, rows, least, most):
    rng = np.random.default_rng(9)
    crcs = []
    for index in range(files):
        with tarfile.open(os.path.join(folder, f"{index:05d}.tar"), "w") as tar:
            for row in range(rows):
                members = {"bin": rng.bytes(rng.integers(least, most, endpoint=True)), "cls": str(row).encode()}
                for suffix, data in members.items():
                    member = tarfile.TarInfo(f"{index:05d}-{row:05d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                crcs.append(zlib.crc32(members["bin"]))
    return {"samples": files * rows, "rows": {"bin": crcs}}


def main():
    folder, kind, *rest = sys.argv[1:]
    if kind == "images":
        files, rows, shape = rest
        facts = images(folder, int(files), int(rows), tuple(int(n) for n in shape.split(",")))
    elif kind == "tokens":
        facts = tokens(folder, int(rest[0]))
    elif kind == "words":
        facts = words(folder, *(int(n) for n in rest))
    elif kind == "tars":
        facts = tars(folder, *(int(n) for n in rest))
    else:
        sys.exit(f"unknown kind {kind!r}")
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    main()
