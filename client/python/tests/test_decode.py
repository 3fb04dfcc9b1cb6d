"""Encoded rows that the loader decodes: pictures as in Pillow, and sounds as in soundfile."""

from __future__ import annotations

import importlib.util
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image as Picture

import larder
from harness import S3Server
from test_formats import write_tar

COUNT = 40
#: Pillow and the loader round the colours of a JPEG differently.
TOLERANCE = 6


def picture(number: int) -> Picture.Image:
    """A smooth picture, as photographs are."""
    rng = np.random.default_rng(number)
    small = rng.integers(0, 255, (6, 8, 3), np.uint8)
    return Picture.fromarray(small).resize((80 + number, 60), Picture.Resampling.BICUBIC)


def encoded(number: int) -> bytes:
    """A picture in one of three formats."""
    out = io.BytesIO()
    kind = ["JPEG", "PNG", "WEBP"][number % 3]
    picture(number).save(out, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return out.getvalue()


def write(folder: Path, bad: tuple[int, ...] = ()) -> None:
    members = {}
    for number in range(COUNT):
        members[f"{number:03}.jpg"] = b"no picture" if number in bad else encoded(number)
        members[f"{number:03}.cls"] = str(number).encode()
        members[f"{number:03}.txt"] = b"x" * number
    write_tar(folder / "0.tar", members)


@pytest.fixture(scope="module")
def uri(s3: S3Server) -> str:
    write(s3.folder / "data" / "decoded")
    return "s3://data/decoded"


def test_pictures_are_those_of_pillow(uri: str, opened: Callable[[str], larder.Dataset]) -> None:
    image = larder.Image((48, 64), crop="stretch")
    for batch in opened(uri).loader(10, decode={"jpg": image}, seed=1):
        assert (batch["jpg"].shape, batch["jpg"].dtype) == ((10, 48, 64, 3), np.uint8)
        assert batch["cls"].tolist() == batch.samples.tolist()
        for row, sample in zip(batch["jpg"], batch.samples.tolist(), strict=True):
            original = Picture.open(io.BytesIO(encoded(sample))).convert("RGB")
            wanted = np.asarray(original.resize((64, 48), Picture.Resampling.BILINEAR), np.int16)
            assert np.abs(wanted - row).max() <= TOLERANCE, sample
        texts = [bytes(batch["txt"].row(row)) for row in range(10)]
        assert texts == [b"x" * sample for sample in batch.samples]


def photographs() -> list[Picture.Image]:
    """The two photographs of scikit-learn, whose package is not imported for them."""
    found = importlib.util.find_spec("sklearn")
    assert found is not None, "scikit-learn is not installed"
    assert found.origin is not None
    images = Path(found.origin).parent / "datasets/images"
    return [Picture.open(images / name).convert("RGB") for name in ("china.jpg", "flower.jpg")]


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_photographs_are_those_of_pillow(subsampling: str, tmp_path: Path) -> None:
    files: list[bytes] = []
    for photograph in photographs():
        for quality, progressive in ((75, False), (90, True), (97, False)):
            out = io.BytesIO()
            photograph.save(
                out, "JPEG", quality=quality, subsampling=subsampling, progressive=progressive
            )
            files.append(out.getvalue())
    write_tar(tmp_path / "0.tar", {f"{n}.jpg": file for n, file in enumerate(files)})
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    (batch,) = ds.loader(
        len(files), shuffle="none", decode={"jpg": larder.Image(224, crop="stretch")}
    )
    for row, file in zip(batch["jpg"], files, strict=True):
        decoded = Picture.open(io.BytesIO(file)).convert("RGB")
        wanted = np.asarray(decoded.resize((224, 224), Picture.Resampling.BILINEAR), np.int16)
        assert np.abs(wanted - row).max() <= TOLERANCE


def test_random_crops_depend_on_seed_epoch_and_sample_alone(
    uri: str, opened: Callable[[str], larder.Dataset]
) -> None:
    decode = {"jpg": larder.Image(32, crop="random", flip=True)}
    ds = opened(uri)

    def rows(size: int, epoch: int, prefetch: int) -> dict[int, bytes]:
        loader = ds.loader(size, decode=decode, seed=4, prefetch=prefetch, tensors=["jpg"])
        loader.set_epoch(epoch)
        return {
            sample: row.tobytes()
            for batch in loader
            for row, sample in zip(batch["jpg"], batch.samples.tolist(), strict=True)
        }

    first = rows(10, 0, 1)
    assert first == rows(4, 0, 3)
    other = rows(10, 1, 2)
    assert all(first[sample] != other[sample] for sample in first)
    alone = larder.open(uri, cluster="none").loader(10, decode=decode, seed=4, tensors=["jpg"])
    batch = next(iter(alone))
    assert first[int(batch.samples[0])] == batch["jpg"][0].tobytes()


def test_resumed_loader_draws_the_same_crops(uri: str) -> None:
    decode = {"jpg": larder.Image(32, crop="random")}
    ds = larder.open(uri, cluster="none")
    loader = ds.loader(8, decode=decode, seed=2)
    batches, states = [], []
    for batch in loader:
        batches.append(batch["jpg"].copy())
        states.append(batch.state_dict())
    resumed = ds.loader(8, decode=decode, seed=2)
    resumed.load_state_dict(states[1])
    assert np.array_equal(next(iter(resumed))["jpg"], batches[2])


def test_bad_pictures_are_named_or_skipped(tmp_path: Path) -> None:
    write(tmp_path / "data", bad=(3, 17))
    uri = f"file://{tmp_path}/data"
    larder.index(uri)
    ds = larder.open(uri, cluster="none")
    decode = {"jpg": larder.Image(16)}
    with pytest.raises(larder.DataLoss, match=r"sample (3|17) of file://.* can't be decoded"):
        list(ds.loader(10, decode=decode))
    loader = ds.loader(10, decode=decode, bad="skip", shuffle=False)
    for epoch in range(2):
        batches = list(loader)
        samples = [sample for batch in batches for sample in batch.samples.tolist()]
        wanted = list(range(COUNT))
        wanted[3], wanted[17] = 4, 18
        assert samples == wanted
        assert [len(batch["jpg"]) for batch in batches] == [10] * 4
        assert [int(label) for batch in batches for label in batch["cls"]] == samples
        assert loader.stats()["skipped"] == 2 * (epoch + 1)
    write(tmp_path / "worse", bad=tuple(range(COUNT)))
    uri = f"file://{tmp_path}/worse"
    larder.index(uri)
    worse = larder.open(uri, cluster="none").loader(10, decode=decode, bad="skip")
    with pytest.raises(larder.DataLoss, match="none of the 10 samples of a batch"):
        next(iter(worse))


def test_sounds_are_those_of_soundfile(tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    folder.mkdir()
    sounds = []
    for number in range(6):
        sounds.append(np.random.default_rng(number).uniform(-0.9, 0.9, (500 + 300 * number, 2)))
        name = f"{number}.{['wav', 'flac'][number % 2]}"
        soundfile.write(folder / name, sounds[-1], 8000, subtype="PCM_16")
    larder.index(f"file://{folder}")
    ds = larder.open(f"file://{folder}", cluster="none")
    audio = larder.Audio(1000, channels=2, sample_rate=8000)
    (batch,) = ds.loader(6, decode={"data": audio}, shuffle=False)
    assert (batch["data"].shape, batch["data"].dtype) == ((6, 2, 1000), np.float32)
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for path, row in zip(paths, batch["data"], strict=True):
        read, _ = soundfile.read(path, dtype="float32")
        wanted = np.zeros((2, 1000), np.float32)
        wanted[:, : len(read)] = read[:1000].T
        assert np.array_equal(row, wanted)
    with pytest.raises(larder.DataLoss, match="can't be decoded"):
        list(ds.loader(6, decode={"data": larder.Audio(10, sample_rate=16_000)}))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"decode": {"cls": larder.Image(8)}}, "tensor 'cls' can't be decoded"),
        ({"decode": {"png": larder.Image(8)}}, "the dataset has no tensor 'png'"),
        ({"decode": {"jpg": larder.Image(8)}, "tensors": ["cls"]}, "'jpg' is to be decoded and"),
        ({"decode": {"jpg": 224}}, "decode is"),
        ({"decode": {"jpg": larder.Image(8, part=2.0)}}, "rows can't be decoded so"),
        ({"bad": "ignore"}, "bad is 'ignore'"),
    ],
)
def test_wrong_arguments_are_refused(uri: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(larder.Error, match=what):
        larder.open(uri, cluster="none").loader(4, **options)


def test_descriptions_are_values() -> None:
    image = larder.Image(224, crop="random", flip=True)
    assert pickle.loads(pickle.dumps(image)) == image
    with pytest.raises(larder.InvalidArgument, match="size is 0"):
        larder.Image(0)
    with pytest.raises(larder.InvalidArgument, match="crop is 'middle'"):
        larder.Image(8, crop="middle")  # type: ignore[arg-type]
    with pytest.raises(larder.InvalidArgument, match="frames is 0"):
        larder.Audio(0)
