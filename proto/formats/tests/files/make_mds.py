"""Write the MDS fixtures and their expected values with mosaicml-streaming.

Run it with mosaicml-streaming 0.13.0 installed:

    python make_mds.py

It replaces the folder `mds` beside it. `mds/expected.json` holds, for each folder and shard file,
the values of each column in hex, as the reader of the package cuts them out of the file.
"""

import json
import shutil
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from streaming import MDSWriter
from streaming.base.compression import decompress
from streaming.base.format.mds import reader as mds_reader
from streaming.base.format.mds.encodings import mds_decode
from streaming.base.util import merge_index

ROOT = Path(__file__).parent / "mds"
RNG = np.random.default_rng(7)
NUMBERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
COMPRESSIONS = ["zstd:3", "gz:6", "br:5", "snappy"]


def picture(size: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 255, (size, size + 1, 3), np.uint8))


def jpeg(size: int) -> bytes:
    out = BytesIO()
    picture(size).save(out, "JPEG")
    return out.getvalue()


def write(folder: str, columns: dict, samples: list, **options) -> None:
    with MDSWriter(columns=columns, out=str(ROOT / folder), **options) as writer:
        for sample in samples:
            writer.write(sample)


def one_variable() -> None:
    samples = [{"a": i, "text": "word " * (i % 5), "z": i / 3} for i in range(20)]
    write("one_variable", {"a": "int", "text": "str", "z": "float32"}, samples, hashes=["sha1"])


def many_variable() -> None:
    columns = {
        "bytes": "bytes", "json": "json", "jpeg": "jpeg", "jpegs": "jpeg_array", "png": "png",
        "pil": "pil", "pngs": "list[png]", "int_text": "str_int", "float_text": "str_float",
        "decimal_text": "str_decimal", "any_array": "ndarray", "u16_array": "ndarray:uint16",
        "label": "uint16", "array": "ndarray:float32:2,3",
    }
    samples = [
        {
            "bytes": bytes(range(i)), "json": {"i": [i, None]}, "jpeg": picture(2 + i),
            "jpegs": [jpeg(2)] * (1 + i), "png": picture(3), "pil": picture(1 + i),
            "pngs": [picture(2)] * i, "int_text": 10**i, "float_text": i / 7,
            "decimal_text": Decimal(i) / 8, "any_array": np.arange(1 + i, dtype=np.int32),
            "u16_array": np.full((1, 2 + i), i, np.uint16), "label": 7 * i,
            "array": np.full((2, 3), i, np.float32),
        }
        for i in range(4)
    ]
    write("many_variable", columns, samples)


def fixed() -> None:
    columns = {"int": "int", "array": "ndarray:float64:3"} | {name: name for name in NUMBERS}
    samples = [
        {"int": -i, "array": np.arange(3) * i / 3} | {name: 3 * i for name in NUMBERS}
        for i in range(10)
    ]
    write("fixed", columns, samples)


def pickled() -> None:
    samples = [{"object": {"i": list(range(i))}, "n": i} for i in range(3)]
    write("pickled", {"object": "pkl", "n": "int64"}, samples)


def shards() -> None:
    samples = [{"a": str(i), "b": "b" * i} for i in range(40)]
    write("shards", {"a": "str", "b": "str"}, samples, size_limit=700)


def nested() -> None:
    for part in ("0-0", "0-1"):
        samples = [{"name": f"{part} {i}"} for i in range(4)]
        write(f"nested/{part}", {"name": "str"}, samples)
    merge_index(str(ROOT / "nested"), keep_local=True)


def compressed() -> None:
    columns = {"text": "str", "n": "int64", "bytes": "bytes", "array": "ndarray:int16:3"}
    samples = [
        {
            "text": f"sample {i} " * (i % 7), "n": -i, "bytes": bytes(range(i)),
            "array": np.full(3, i, np.int16),
        }
        for i in range(60)
    ]
    numbers = [{"n": i, "half": i / 2} for i in range(40)]
    for name in COMPRESSIONS:
        folder = f"compressed_{name.partition(':')[0]}"
        write(folder, columns, samples, compression=name, size_limit=3000)
    write("compressed_fixed", {"n": "int", "half": "float16"}, numbers, compression="zstd")


def unpack(folder: Path, info: dict) -> Path:
    """Decompress a shard with the package, as its reader does."""
    packed = (folder / info["zip_data"]["basename"]).read_bytes()
    raw = folder / info["raw_data"]["basename"]
    raw.write_bytes(decompress(info["compression"], packed))
    return raw


def values(folder: Path, info: dict) -> dict:
    """Cut out the values of a shard with the package's reader; decode and compare the numbers."""
    mds_reader.mds_decode = lambda encoding, data: data
    reader = mds_reader.MDSReader.from_json(str(folder), None, info)
    reader.split = ""
    rows = [reader.decode_sample(reader.get_sample_data(i)) for i in range(reader.samples)]
    columns = dict(zip(info["column_names"], info["column_encodings"]))
    for name, encoding in columns.items():
        if encoding in NUMBERS:
            for row in rows:
                number = np.dtype(encoding).type(mds_decode(encoding, row[name]))
                assert number.tobytes() == row[name]
    return {name: [row[name].hex() for row in rows] for name in columns}


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    for make in (one_variable, many_variable, fixed, pickled, shards, nested, compressed):
        make()
    expected = {}
    for index in sorted(ROOT.glob("*/index.json")):
        infos = json.loads(index.read_text())["shards"]
        unpacked = [unpack(index.parent, info) for info in infos if info["compression"]]
        expected[index.parent.name] = {
            info["raw_data"]["basename"]: values(index.parent, info) for info in infos
        }
        for file in unpacked:
            file.unlink()
    text = json.dumps(expected, separators=(",", ":"))
    (ROOT / "expected.json").write_text(text.replace('"],', '"],\n') + "\n")


main()
