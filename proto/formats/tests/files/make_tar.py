"""Writes the tars beside this script with the real writers: webdataset 1.0.2 and Python's tarfile.
`expected.json` holds the samples that webdataset reads from them: the key, and for each suffix the
bytes in hex, or the integer that webdataset decodes by default. Run it in an environment that has
webdataset."""

import io
import json
import pathlib
import random
import tarfile

import webdataset

HERE = pathlib.Path(__file__).parent
INTEGERS = ["cls", "cls2", "index", "inx", "id"]
RANDOM = random.Random(7)
tarfile.RECORDSIZE = 1024  # Less padding at the end than usual, for small fixtures.


def webdataset_writer():
    """Two shards. The keys of the second take PAX headers, and so do its float times."""
    for name, mtime, folder in [("webdataset", 0, "train"), ("webdataset_pax", 0.5, "train/" + "f" * 120)]:
        path = str(HERE / f"{name}_%d.tar")
        with webdataset.ShardWriter(path, maxcount=100, mtime=mtime, verbose=0) as writer:
            for row in range(3):
                sample = {"__key__": f"{folder}/{row:04}", "jpg": RANDOM.randbytes(row * 300), "cls": row - 2}
                if row % 2:
                    sample |= {"seg.png": RANDOM.randbytes(40), "json": {"row": row}}
                if row == 2:
                    sample["index"] = 2**62
                writer.write(sample)


def member(tar, name, body=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(body)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(body))


def tarfile_writer(name, form, names, **options):
    with tarfile.open(HERE / f"{name}.tar", "w", format=form, **options) as tar:
        for row, path in enumerate(names):
            if path.endswith("/"):
                member(tar, path[:-1], type=tarfile.DIRTYPE)
            elif path.endswith("link"):
                member(tar, path, type=tarfile.SYMTYPE, linkname="l" * (90 if form == tarfile.USTAR_FORMAT else 120))
            else:
                body = b" %d\n" % row if path.lower().endswith(".cls") else RANDOM.randbytes(row % 3 * 60)
                member(tar, path, body)


def long_names(folder):
    return [f"{folder}/", f"{folder}/a.txt", f"{folder}/a.cls", f"{folder}/link", f"{folder}/b.txt", "short.txt"]


ODD_NAMES = [
    "./a.PNG", "./a.Cls", "a.png", "b.png", "b", "b.seg.png", "README", "a.png", "__meta__", "__meta__/c.png",
    "c/__meta__.png", "__c.png", ".hidden", "x/.hidden", "x/.h.png", "x.y/.hidden", "x.y/z", "x.y/z.png", "x.y/../z.png",
    "/abs.png", "//d.png", "e..png", "f.ÄÖ", "schlüssel.png", "g h.png", "h.png.", "i.\u0130\u03a3",
]


def read(path):
    """The samples as webdataset reads them."""
    for sample in webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False):
        values = {name: value for name, value in sample.items() if not name.startswith("__")}
        yield {
            "key": sample["__key__"],
            "values": {name: int(value) if name in INTEGERS else value.hex() for name, value in values.items()},
        }


if __name__ == "__main__":
    webdataset_writer()
    nested = "/".join(["d" * 20] * 7)
    tarfile_writer("ustar", tarfile.USTAR_FORMAT, long_names(nested))
    tarfile_writer("pax", tarfile.PAX_FORMAT, long_names("p" * 300 + "/ü"), pax_headers={"comment": "of all"})
    tarfile_writer("gnu", tarfile.GNU_FORMAT, long_names("g" * 300 + "/ü"))
    tarfile_writer("odd_names", tarfile.GNU_FORMAT, ODD_NAMES)
    expected = {path.name: list(read(path)) for path in sorted(HERE.glob("*.tar"))}
    lines = (f"{json.dumps(name)}: {json.dumps(samples)}" for name, samples in expected.items())
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
