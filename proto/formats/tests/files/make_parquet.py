"""Write the Parquet fixtures with pyarrow and datasets, and their expected rows.

Run it with pyarrow 26.0.1 and datasets 5.0.1 installed:

    python make_parquet.py

It replaces the folder `parquet` beside it. `parquet/expected.json` holds, for each file and column,
the SHA-256 of the rows as pyarrow reads them, back to back, and the bytes of each row. Nulls are
zero, or empty if rows differ in length.
"""

import datetime
import decimal
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parent / "parquet"
RNG = random.Random(7)
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ROWS = 60


def bits(name: str) -> int:
    return int("".join(filter(str.isdigit, name)))


def value(kind: str, row: int) -> Any:
    if kind == "few":
        return RNG.choice(["cat", "dog", "", "a longer name"])
    if kind == "text":
        return "word " * RNG.randrange(6) + str(row)
    if kind == "binary":
        return RNG.randbytes(RNG.choice([0, 1, 9000 if row == 5 else 40]))
    if kind == "bool":
        return RNG.random() < 0.5
    if kind == "fixed":
        return RNG.randbytes(12)
    if kind == "half":
        return np.float16(RNG.random())
    if kind == "list":
        return [RNG.randrange(100) for _ in range(RNG.randrange(6))]
    if kind == "fixed_list":
        return [RNG.random() for _ in range(4)]
    if kind == "image":
        return {"bytes": RNG.randbytes(RNG.randrange(50)), "path": None}
    if kind.startswith("float"):
        return RNG.random()
    span = bits(kind) - (kind[0] == "i")
    return RNG.randrange(2**span) - (2 ** (span - 1) if kind[0] == "i" else 0)


TYPES = {
    "few": pa.string(),
    "text": pa.large_string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "fixed": pa.binary(12),
    "half": pa.float16(),
    "list": pa.list_(pa.int16()),
    "fixed_list": pa.list_(pa.float32(), 4),
    "image": pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    "float32": pa.float32(),
    "float64": pa.float64(),
} | {name: getattr(pa, name)() for name in NUMBERS}


def table(kinds: list[str], rows: int = ROWS, nulls: float = 0.0) -> pa.Table:
    def column(kind: str) -> pa.Array:
        some = (None if RNG.random() < nulls else value(kind, row) for row in range(rows))
        return pa.array(list(some), TYPES[kind])

    return pa.table({kind: column(kind) for kind in kinds})


def raw(kind: pa.DataType, row: Any) -> bytes:
    """A row as Larder holds it."""
    if pa.types.is_fixed_size_list(kind):
        row = [0] * kind.list_size if row is None else row
        return b"".join(raw(kind.value_type, element) for element in row)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return b"".join(raw(kind.value_type, element) for element in row or [])
    if pa.types.is_fixed_size_binary(kind):
        return row or bytes(kind.byte_width)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (row or "").encode()
    if pa.types.is_binary(kind):
        return row or b""
    if pa.types.is_decimal(kind):
        return b"" if row is None else format(row, "f").encode()
    if pa.types.is_timestamp(kind):
        return np.int64(pa.scalar(row, kind).value or 0).tobytes()
    return np.array([row or 0], kind.to_pandas_dtype()).tobytes()


def columns(read: pa.Table) -> dict[str, Any]:
    expected = {}
    for name in read.column_names:
        rows, kind = read[name].to_pylist(), read.schema.field(name).type
        fields = {name: (rows, kind)}
        if pa.types.is_struct(kind):
            fields = {
                f"{name}.{field.name}": ([row and row[field.name] for row in rows], field.type)
                for field in kind
            }
        for dotted, (values, kind) in fields.items():
            made = [raw(kind, row) for row in values]
            expected[dotted] = {
                "sha256": hashlib.sha256(b"".join(made)).hexdigest(),
                "bytes": [len(row) for row in made],
                "valid": [row is not None for row in values],
            }
    return expected


def write(name: str, written: pa.Table, **options: Any) -> Any:
    path = ROOT / f"{name}.parquet"
    pq.write_table(written, path, **options)
    return columns(pq.read_table(path))


def by_datasets() -> Any:
    """Pictures, classes, texts and lists in row groups of 25 rows, as Hugging Face has them."""
    features = {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
        "text": datasets.Value("string"),
        "scores": datasets.List(datasets.Value("float32")),
        "box": datasets.List(datasets.Value("int64"), length=4),
    }
    rows = {
        "image": [value("image", row) for row in range(ROWS)],
        "label": [row % 2 for row in range(ROWS)],
        "text": [None if row % 7 == 3 else value("text", row) for row in range(ROWS)],
        "scores": [[RNG.random() for _ in range(row % 5)] for row in range(ROWS)],
        "box": [[row, 2, 3, -row] for row in range(ROWS)],
    }
    path = ROOT / "datasets.parquet"
    written = datasets.Dataset.from_dict(rows, datasets.Features(features))
    written.to_parquet(path, batch_size=25)
    return columns(pq.read_table(path))


def decimals() -> pa.Table:
    """Decimals that fit 4, 8 and 16 bytes."""

    def column(digits: int, scale: int) -> pa.Array:
        numbers = [None, 0, 1, -1, 10**digits - 1, 1 - 10**digits]
        numbers += [13**row * (-1) ** row % 10**digits for row in range(ROWS - len(numbers))]
        scaled = (n if n is None else decimal.Decimal(n).scaleb(-scale) for n in numbers)
        with decimal.localcontext(prec=40):
            return pa.array(list(scaled), pa.decimal128(digits, scale))

    return pa.table({"small": column(7, 2), "middle": column(18, 18), "large": column(38, 10)})


def boxes() -> pa.Table:
    """Lists of lists of numbers that all have one length, with rows that are null or empty."""
    kinds = {
        "boxes": (pa.list_(pa.list_(pa.float32())), lambda n: [n + 0.5, 2, n, -n]),
        "points": (pa.large_list(pa.large_list(pa.int64())), lambda n: [n, -n]),
        "fixed": (pa.list_(pa.list_(pa.float64(), 3)), lambda n: [n, 0.1, n * n]),
        "flags": (pa.list_(pa.list_(pa.bool_())), lambda n: [n % 2 == 0]),
        "times": (pa.list_(pa.list_(pa.timestamp("us"))), lambda n: [n, n + 1]),
    }

    def column(kind: pa.DataType, element: Any) -> pa.Array:
        def row(number: int) -> Any:
            return None if number % 7 == 3 else [element(number + n) for n in range(number % 4)]

        return pa.array([row(number) for number in range(ROWS)], kind)

    made = {name: column(*kind) for name, kind in kinds.items()}
    inside = [pa.field("box", made["boxes"].type)]
    missing = pa.array([row % 5 == 0 for row in range(ROWS)])
    made["object"] = pa.StructArray.from_arrays([made["boxes"]], fields=inside, mask=missing)
    return pa.table(made)


def write_nested() -> None:
    """Chats, captions, lists of lists and maps, with nulls at each level, for the damaged files."""
    turn = [{"role": "user", "content": 'a "quoted" text'}, None, {"role": None, "content": ""}]
    nested = pa.table(
        {
            "messages": pa.array([turn[: row % 4] or None for row in range(ROWS)]),
            "captions": pa.array([["one", None, ""][: row % 4] for row in range(ROWS)]),
            "grid": pa.array([[[row, None], None, []][: row % 4] for row in range(ROWS)]),
            "tags": pa.array(
                [[("a", row), ("b", None)][: row % 3] for row in range(ROWS)],
                pa.map_(pa.string(), pa.int64()),
            ),
        }
    )
    pq.write_table(nested, ROOT / "nested.parquet", row_group_size=25)
    pq.write_table(
        nested, ROOT / "nested_v2.parquet", compression="none", data_page_version="2.0"
    )


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    all_kinds = list(TYPES)
    deltas = {name: "DELTA_BINARY_PACKED" for name in NUMBERS}
    deltas |= {"few": "DELTA_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY", "bool": "RLE"}
    deltas |= {"text": "DELTA_LENGTH_BYTE_ARRAY", "half": "BYTE_STREAM_SPLIT"}
    deltas |= {"float32": "BYTE_STREAM_SPLIT", "float64": "BYTE_STREAM_SPLIT"}
    plain = {"use_dictionary": False}
    expected = {
        "snappy": write("snappy", table(all_kinds, nulls=0.2), compression="snappy"),
        "zstd": write("zstd", table(all_kinds), compression="zstd", data_page_version="2.0"),
        "gzip": write("gzip", table(all_kinds, nulls=0.5), compression="gzip", **plain),
        "lz4": write(
            "lz4", table(all_kinds, nulls=1.0), compression="lz4", data_page_version="2.0"
        ),
        "deltas": write(
            "deltas", table(all_kinds, nulls=0.1), compression="none", column_encoding=deltas, **plain
        ),
        "groups": write(
            "groups",
            table(["list", "fixed_list", "few", "int64"], 500, nulls=0.1),
            row_group_size=70,
            data_page_size=64,
            write_batch_size=5,
            write_statistics=False,
        ),
    }
    many = pa.table(
        {
            "number": pa.array([1, 2], pa.int64()),
            "decimal": pa.array([decimal.Decimal("1.5")] * 2),
            "map": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64())),
            "lists": pa.array([[[1]]] * 2),
            "texts": pa.array([["a"]] * 2),
            "structs": pa.array([[{"a": 1, "b": 2}]] * 2),
            "holes": pa.array([[1, None]] * 2),
            "time": pa.array([datetime.datetime(2026, 1, 1)] * 2, pa.timestamp("us")),
            "date": pa.array([datetime.date(2026, 1, 1)] * 2),
        }
    )
    pq.write_table(many.replace_schema_metadata({"note": "kept"}), ROOT / "left_out.parquet")
    times = [None if row % 7 == 3 else 10**16 * row - 3 * 10**17 + row for row in range(ROWS)]
    times = pa.table({"time": pa.array(times, pa.timestamp("ns"))})
    expected["int96"] = write("int96", times, use_deprecated_int96_timestamps=True)
    expected["decimals"] = write("decimals", decimals())
    expected["decimal_integers"] = write(
        "decimal_integers", decimals(), store_decimal_as_integer=True, compression="none"
    )
    write_nested()
    names = pa.table([pa.array([row, row + 1]) for row in range(5)], ["a", "", "b", "a", "a"])
    pq.write_table(names, ROOT / "names.parquet")
    expected["brotli"] = write("brotli", table(["int64", "few"]), compression="brotli")
    expected["datasets"] = by_datasets()
    pages = {"row_group_size": 25, "data_page_size": 64, "write_batch_size": 5}
    expected["boxes"] = write("boxes", boxes(), **pages)
    expected["boxes_v2"] = write(
        "boxes_v2", boxes(), compression="none", data_page_version="2.0", **plain
    )
    text = json.dumps(expected, separators=(",", ":"))
    (ROOT / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
