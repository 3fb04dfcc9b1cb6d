"""Writes the Arrow fixtures in `arrow/` with the real writers, pyarrow 26.0.1, datasets 5.0.1 and polars.

Run it in an environment that has these packages and Pillow. `expected.json` holds the columns of
each file as pyarrow reads them back: the bytes of every row in hex, or its value if it becomes JSON."""

import datetime
import decimal
import io
import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
from PIL import Image
from pyarrow import ipc

HERE = pathlib.Path(__file__).parent / "arrow"
ROWS = 6
SLICES = [(0, 3), (3, 0), (3, 2), (5, 1)]

NUMBERS = {
    pa.int8(): ("I8", "i1"), pa.int16(): ("I16", "<i2"), pa.int32(): ("I32", "<i4"), pa.int64(): ("I64", "<i8"),
    pa.uint8(): ("U8", "u1"), pa.uint16(): ("U16", "<u2"), pa.uint32(): ("U32", "<u4"), pa.uint64(): ("U64", "<u8"),
    pa.float16(): ("F16", "<f2"), pa.float32(): ("F32", "<f4"), pa.float64(): ("F64", "<f8"),
}  # fmt: skip


def numbers():
    """A column of each type of number, with the extremes."""
    columns = {}
    for kind, (_, code) in NUMBERS.items():
        low, high = (-1.5, 6e4) if kind in (pa.float16(), pa.float32(), pa.float64()) else (
            np.iinfo(code).min, np.iinfo(code).max)  # fmt: skip
        columns[str(kind)] = pa.array(np.array([low, high, 1, 2, 3, 4], dtype=code))
    return columns


def times():
    day, hour = datetime.date(2026, 5, 17), datetime.time(3, 4, 5)
    moment = datetime.datetime(2026, 5, 17, 3, 4, 5)
    kinds = {
        "date32": (pa.date32(), day), "date64": (pa.date64(), day),
        "time32": (pa.time32("s"), hour), "time64": (pa.time64("us"), hour),
        "timestamp": (pa.timestamp("ms", "Europe/Rome"), moment),
        "duration": (pa.duration("ns"), datetime.timedelta(days=1)),
    }  # fmt: skip
    return {name: pa.array([value] * ROWS, kind) for name, (kind, value) in kinds.items()}


def texts():
    words = ["", "one", "zwei", "三", "", "five"]
    raw = [word.encode() for word in words]
    return {
        "utf8": pa.array(words), "large_utf8": pa.array(words, pa.large_utf8()),
        "binary": pa.array(raw), "large_binary": pa.array(raw, pa.large_binary()),
        "fixed_binary": pa.array([b"abc"] * 5 + [b"xyz"], pa.binary(3)),
        "empty_binary": pa.array([b""] * ROWS, pa.binary(0)),
    }  # fmt: skip


def lists():
    ragged = [[1], [], [2, 3, 4], [5], [], [6, 7]]
    pairs = [[[n, n + 1]] * n for n in range(ROWS)]
    grid = np.arange(ROWS * 6, dtype=np.int16)
    grid = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(grid, 3), 2)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 2, 2))
    return {
        "list": pa.array(ragged, pa.list_(pa.float32())), "large_list": pa.array(ragged, pa.large_list(pa.uint8())),
        "list_of_pairs": pa.array(pairs, pa.list_(pa.list_(pa.int32(), 2))),
        "pair": pa.array([[n, -n] for n in range(ROWS)], pa.list_(pa.int64(), 2)),
        "grid": grid, "tensor": tensor,
    }  # fmt: skip


def structs():
    people = [{"name": "n" * n, "box": [n, n + 1], "deep": {"id": n, "none": None}} for n in range(ROWS)]
    deep = pa.struct({"id": pa.int32(), "none": pa.utf8()})
    kind = pa.struct({"name": pa.utf8(), "box": pa.list_(pa.float32(), 2), "deep": deep})
    some = [{"a": 1}, None] * (ROWS // 2)
    return {"person": pa.array(people, kind), "some_struct": pa.array(some, pa.struct({"a": pa.int8()}))}


def made():
    """Columns that are not spans of the file, and some that are left out, whose buffers must still be found."""
    views = ["short", "a string longer than twelve bytes"] * (ROWS // 2)
    return {
        "bool": pa.array([True, False] * (ROWS // 2)),
        "dictionary": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "utf8_view": pa.array(views, pa.string_view()),
        "binary_view": pa.array([view.encode() for view in views], pa.binary_view()),
        "between": pa.array(range(ROWS), pa.int32()),
        "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.utf8(), pa.int32())),
        "decimal": pa.array([decimal.Decimal("1.5")] * ROWS, pa.decimal128(5, 2)),
        "interval": pa.array([pa.MonthDayNano([1, 2, 3])] * ROWS),
        "list_view": pa.array([[1, 2]] * ROWS, pa.list_view(pa.int32())),
        "run_ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, ROWS], pa.int32()), pa.array([7, 8])),
        "nested": pa.array([[[1], [2]]] * ROWS), "words": pa.array([["a", "b"]] * ROWS),
        "list_of_structs": pa.array([[{"x": 1}]] * ROWS), "flags": pa.array([[True]] * ROWS, pa.list_(pa.bool_(), 1)),
        "null": pa.nulls(ROWS), "all_null": pa.nulls(ROWS, pa.utf8()),
        "some_nulls": pa.array([1, None] * (ROWS // 2)), "null_words": pa.array(["x", None] * (ROWS // 2)),
        "null_inside": pa.array([[1, None]] * ROWS), "null_pair": pa.array([[1, None]] * ROWS, pa.list_(pa.int8(), 2)),
        "late_null": pa.array(["x"] * 5 + [None]),
        "dictionary_null": pa.array(["a", None, "bb"] * (ROWS // 3)).dictionary_encode(),
        "dictionary_numbers": pa.array([7, 9, None] * (ROWS // 3), pa.int16()).dictionary_encode(),
        "null_view": pa.array(["v", None, "a string longer than twelve bytes"] * (ROWS // 3), pa.string_view()),
        "null_bool": pa.array([True, None, False] * (ROWS // 3)),
        "null_list": pa.array([[1, 2], None, []] * (ROWS // 3), pa.list_(pa.float32())),
        "null_fixed_list": pa.array([[1, 2], None] * (ROWS // 2), pa.list_(pa.int8(), 2)),
        "null_binary": pa.array([b"\0\1", None] * (ROWS // 2), pa.large_binary()),
        "null_fixed_binary": pa.array([b"abc", None] * (ROWS // 2), pa.binary(3)),
        "null_struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}] * (ROWS // 3)),
        "bool_lists": pa.array([[True, False, True], [], [False]] * (ROWS // 3)),
        "last": pa.array(range(ROWS), pa.int64()),
    }  # fmt: skip


def json_columns():
    day, moment = datetime.date(2026, 5, 17), datetime.datetime(2026, 5, 17, 3, 4, 5, 600)
    chat = [
        [{"role": "user", "content": 'say "hi"\n\\ ü \x01'}, {"role": "assistant", "content": "hi"}],
        [], None, [{"role": None, "content": "x"}, None], [{"role": "a", "content": ""}], [{"role": "b", "content": "😀"}],
    ]  # fmt: skip
    deep = [{"a": [[1], None, []], "b": {"c": 1.5, "d": None}}, None, {"a": None, "b": None}] * (ROWS // 3)
    kinds = [{"f": 0.1, "h": 1e300, "i": -1, "u": 2**64 - 1, "t": True, "d": day, "m": moment, "n": None}] * ROWS
    kind = pa.struct({
        "f": pa.float32(), "h": pa.float64(), "i": pa.int8(), "u": pa.uint64(), "t": pa.bool_(), "d": pa.date32(),
        "m": pa.timestamp("us"), "n": pa.null(),
    })  # fmt: skip
    return {
        "chat": pa.array(chat, pa.list_(pa.struct({"role": pa.utf8(), "content": pa.large_utf8()}))),
        "captions": pa.array([["one", "", None], None, []] * (ROWS // 3)),
        "boxes": pa.array([[[1.5, 2, 3, 4]] * n for n in range(ROWS)], pa.list_(pa.list_(pa.float32()))),
        "objects": pa.array([[{"k": [{"x": deep[row]}]}] for row in range(ROWS)]),
        "kinds": pa.array([kinds[:row] for row in range(ROWS)], pa.list_(kind)),
        "number_map": pa.array([[(1, "a"), (2, None)], None, []] * (ROWS // 3), pa.map_(pa.int32(), pa.utf8())),
        "views": pa.array([["short", "a string longer than twelve bytes"]] * ROWS, pa.list_(pa.string_view())),
        "pairs_of_texts": pa.array([["a", "b"], None] * (ROWS // 2), pa.list_(pa.utf8(), 2)),
        "in_struct": pa.array([{"texts": ["a"], "n": 1}, None] * (ROWS // 2)),
        "pictures": pa.array([[{"bytes": b"\xff", "path": "p"}]] * ROWS),
    }  # fmt: skip


def unions():
    types, offsets = pa.array([0, 1] * (ROWS // 2), pa.int8()), pa.array([0, 0, 1, 1, 2, 2], pa.int32())
    halves = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    wholes = [pa.array(range(ROWS)), pa.array(["w"] * ROWS)]
    return {
        "sparse_union": pa.UnionArray.from_sparse(types, wholes),
        "dense_union": pa.UnionArray.from_dense(types, offsets, halves),
        "after_unions": pa.array(["u" * n for n in range(ROWS)]),
    }


def parts(batch):
    return [batch.slice(begin, rows) for begin, rows in SLICES]


def write(name, batches, schema=None, **options):
    opener = ipc.new_file if ".file." in name else ipc.new_stream
    schema = schema or batches[0].schema
    with opener(HERE / name, schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def record_batch(*groups, metadata=None):
    columns = {name: column for group in groups for name, column in group.items()}
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return batch.replace_schema_metadata(metadata)


def pyarrow_files():
    every = record_batch(numbers(), times(), texts(), lists(), structs(), metadata={"huggingface": '{"a": 1}'})
    write("kinds.file.arrow", [every])
    write("kinds.stream.arrow", parts(every))
    mixed = record_batch(made(), json_columns(), unions())
    write("mixed.file.arrow", parts(mixed))
    write("mixed.stream.arrow", [mixed])
    write("mixed_lz4.stream.arrow", parts(mixed), compression="lz4")
    write("mixed_zstd.file.arrow", [mixed], compression="zstd")
    few = record_batch({"n": numbers()["int32"], "words": texts()["utf8"]}, metadata={"key": "value"})
    write("empty.file.arrow", [], few.schema)
    write("empty.stream.arrow", [], few.schema)
    legacy = record_batch({"n": numbers()["int32"], "gone": pa.nulls(ROWS), "words": texts()["utf8"]})
    old = {"metadata_version": ipc.MetadataVersion.V4}
    write("v4.file.arrow", parts(legacy), **old)
    write("legacy.stream.arrow", parts(legacy), use_legacy_format=True, **old)
    write("lz4.stream.arrow", [few], compression="lz4")
    write("zstd.file.arrow", [few], compression="zstd")


def polars_files():
    frame = pl.DataFrame({
        "text": ["short", None, "a string longer than twelve bytes"] * 40, "number": [1, None, 3] * 40,
        "flag": [True, False, None] * 40, "category": ["x", "y", None] * 40, "list": [[1, 2], [], None] * 40,
        "texts": [["a"], None, ["b", None]] * 40, "plain": range(120),
    }).with_columns(pl.col("category").cast(pl.Categorical))  # fmt: skip
    frame.write_ipc(HERE / "polars.file.arrow", compression="zstd", compat_level=pl.CompatLevel.newest())
    frame.write_ipc_stream(HERE / "polars.stream.arrow", compression="lz4")


def picture(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


def datasets_files():
    """A saved dataset of two batches, and the cache of a map, which has three."""
    rows = 110
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]), caption=datasets.Value("string"),
        boxes=datasets.List(datasets.Value("float32")), point=datasets.List(datasets.Value("float32"), length=2),
    )  # fmt: skip
    columns = {
        "image": [picture(row) for row in range(rows)], "label": [row % 2 for row in range(rows)],
        "caption": ["w" * (row % 7) for row in range(rows)], "boxes": [[row / 2] * (row % 3) for row in range(rows)],
        "point": [[row, -row] for row in range(rows)],
    }  # fmt: skip
    dataset = datasets.Dataset.from_dict(columns, features=features)
    with tempfile.TemporaryDirectory() as folder:
        dataset.save_to_disk(folder)
        shutil.copy(pathlib.Path(folder, "data-00000-of-00001.arrow"), HERE / "saved.stream.arrow")
    length = {"length": datasets.Value("int32"), **features}
    dataset.select(range(10)).map(
        lambda row: {"length": len(row["caption"])}, features=datasets.Features(length),
        writer_batch_size=4, cache_file_name=str(HERE / "cache.stream.arrow"),
    )  # fmt: skip


def plain(column):
    """The column with numbers in place of times, and the storage of extension types."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.view(pa.int64())
    return column


def is_text(kind):
    return any(check(kind) for check in (
        pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary,
        pa.types.is_string_view, pa.types.is_binary_view,
    ))  # fmt: skip


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def element(kind):
    """The dtype, numpy code and shape of values of one length. None for other types."""
    if pa.types.is_dictionary(kind):
        return element(kind.value_type)
    if kind == pa.bool_():
        return "BOOL", "?", []
    if kind in NUMBERS:
        return (*NUMBERS[kind], [])
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind) and kind.byte_width:
        return "U8", None, [kind.byte_width]
    if pa.types.is_fixed_size_list(kind) and element(kind.value_type):
        dtype, code, shape = element(kind.value_type)
        return dtype, code, [kind.list_size, *shape]
    return None


def inner_length(column):
    """The one length of lists in lists of numbers. None if there are several, nulls, or no lists at all."""
    if not is_list(column.type.value_type) or has_nulls(column.flatten()):
        return None
    lengths = {len(inner) for row in column.to_pylist() for inner in row or []}
    return lengths.pop() if len(lengths) == 1 and lengths != {0} else None


def has_nulls(column):
    inside = is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    return column.null_count > 0 or (inside and has_nulls(column.flatten()))


def reason(kind):
    """Why a type becomes no column. None if it can be JSON."""
    if pa.types.is_map(kind):
        return reason(kind.key_type) or reason(kind.item_type)
    if is_list(kind) or pa.types.is_fixed_size_list(kind):
        return reason(kind.value_type)
    if pa.types.is_struct(kind):
        return next(filter(None, (reason(kind.field(index).type) for index in range(kind.num_fields))), None)
    if pa.types.is_dictionary(kind):
        return reason(kind.value_type)
    known = kind in NUMBERS or kind == pa.bool_() or pa.types.is_null(kind) or pa.types.is_temporal(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return None if (known and not pa.types.is_interval(kind)) or texts else "not yet"


def value(kind, item):
    """An item of `to_pylist` as JSON has it."""
    if item is None:
        return None
    if pa.types.is_map(kind):
        pairs = [[value(kind.key_type, key), value(kind.item_type, own)] for key, own in item]
        return dict(pairs) if pa.types.is_string(kind.key_type) else pairs
    if is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [value(kind.value_type, own) for own in item]
    if pa.types.is_struct(kind):
        return {name: value(kind.field(name).type, own) for name, own in item.items()}
    return item.isoformat() if pa.types.is_temporal(kind) else item


def expect(name, column, table):
    """Adds a column of a file as it is read back."""
    column = plain(column)
    kind, is_ragged = column.type, False
    if (len(column) and column.null_count == len(column)) or pa.types.is_null(kind):
        table["nulls"].append(name)
        return
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten()):
            expect(f"{name}.{field.name}", child, table)
        return
    of = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_text(of):
        found, is_ragged = ("U8", None, []), True
    elif is_list(kind):
        found, is_ragged = element(kind.value_type), True
        length = inner_length(column)
        if length and element(kind.value_type.value_type):
            dtype, code, shape = element(kind.value_type.value_type)
            found = (dtype, code, [length]) if not shape else None
        found = None if has_nulls(column.flatten()) else found
    else:
        found = element(kind)
        holes = pa.types.is_fixed_size_list(kind) and has_nulls(column.drop_null().flatten())
        found = None if holes else found
    valid = [item.is_valid for item in column]
    added = {"name": name, "ragged": is_ragged, "valid": None if all(valid) else valid}
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 0:
        table["left_out"][name] = "values of no bytes"
    elif found is None and reason(kind):
        table["left_out"][name] = reason(kind)
    elif found is None:
        values = [value(kind, item) for item in column.to_pylist()]
        table["columns"].append({**added, "dtype": "U8", "shape": [], "ragged": True, "json": values})
    else:
        dtype, code, shape = found
        zero = bytes(0 if is_ragged else np.dtype(code or "u1").itemsize * int(np.prod(shape)))
        encode = lambda item: item.encode() if isinstance(item, str) else item  # noqa: E731
        if code is not None:
            encode = lambda item: np.array(item, dtype=code).tobytes()  # noqa: E731
        rows = [(zero if item is None else encode(item)).hex() for item in column.to_pylist()]
        table["columns"].append({**added, "dtype": dtype, "shape": shape, "rows": rows})


def expectations():
    expected = {}
    for path in sorted(HERE.glob("*.arrow")):
        opener = ipc.open_file if ".file." in path.name else ipc.open_stream
        with opener(path) as reader:
            read = reader.read_all()
        metadata = {key.decode(): value.decode() for key, value in (read.schema.metadata or {}).items()}
        table = {"rows": len(read), "metadata": metadata, "columns": [], "left_out": {}, "nulls": []}
        for field, column in zip(read.schema, read.columns):
            chunks = column.unify_dictionaries().chunks or [pa.array([], field.type)]
            expect(field.name, pa.concat_arrays(chunks), table)
        expected[path.name] = table
    return expected


HERE.mkdir(exist_ok=True)
pyarrow_files()
datasets_files()
polars_files()
with open(HERE / "expected.json", "w") as file:
    json.dump(expectations(), file, ensure_ascii=False, separators=(",", ":"))
    file.write("\n")
