"""Encoded rows that the loader decodes: pictures as in Pillow, and sounds as in soundfile."""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from PIL import Image as Picture

import larder
from harness import S3Server
from test_formats import write_tar

COUNT = 40
#: Pillow and the loader round resized pixels differently.
TOLERANCE = 1


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


@pytest.mark.parametrize("size", [(60, 80), (1, 4), (9, 4), (17, 33)])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_pixels_of_a_jpeg_equal_those_of_pillow(
    size: tuple[int, int], subsampling: str, tmp_path: Path
) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (*size, 3)).astype(np.uint8)
    for progressive in (False, True):
        path = tmp_path / f"{progressive}.jpg"
        Picture.fromarray(noise).save(path, subsampling=subsampling, progressive=progressive)
    decode = {"data": larder.Image(size, crop="stretch")}
    (batch,) = larder.open(f"file://{tmp_path}", cluster="none").loader(2, decode=decode)
    names = sorted(tmp_path.glob("*.jpg"))
    for sample, row in zip(batch.samples.tolist(), batch["data"], strict=True):
        assert np.array_equal(row, np.asarray(Picture.open(names[sample])))


def test_16_bits_of_a_png_are_kept(tmp_path: Path) -> None:
    depth = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64) * 15
    Picture.fromarray(depth).save(tmp_path / "1.png")
    ds = larder.open(f"file://{tmp_path}", cluster="none")

    def decoded(**options: Any) -> np.ndarray[Any, Any]:
        image = larder.Image(64, crop="stretch", color="gray", **options)
        batch = next(iter(ds.loader(1, decode={"data": image}, output="numpy")))
        return np.array(batch["data"][0, :, :, 0])

    kept = decoded(dtype="uint16")
    assert kept.dtype == np.uint16
    assert np.array_equal(kept, depth)
    assert np.array_equal(decoded(), depth >> 8)
    Picture.fromarray((depth >> 8).astype(np.uint8)).save(tmp_path / "1.png")
    larder.index(f"file://{tmp_path}")
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    with pytest.raises(larder.DataLoss, match="no PNG of 16 bits"):
        decoded(dtype="uint16")


def test_mask_gets_the_crop_of_its_image_and_keeps_its_labels(tmp_path: Path) -> None:
    members = {}
    for number in range(8):
        labels = np.random.default_rng(number).choice([0, 7, 255], (50, 40)).astype(np.uint8)
        for name in ("image.png", "mask.png"):
            out = io.BytesIO()
            Picture.fromarray(labels).save(out, "PNG")
            members[f"{number}.{name}"] = out.getvalue()
    write_tar(tmp_path / "0.tar", members)
    options: dict[str, Any] = {"crop": "random", "flip": True, "filter": "nearest"}
    decode = {
        "image.png": larder.Image(32, **options),
        "mask.png": larder.Image(32, color="gray", **options),
    }
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    (batch,) = ds.loader(8, decode=decode, output="numpy")
    assert set(np.unique(batch["mask.png"])) == {0, 7, 255}
    assert np.array_equal(batch["image.png"], batch["mask.png"].repeat(3, -1))


def stored_turned() -> bytes:
    """A white upper half, of which the EXIF orientation says that it is the right one."""
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8] = 255
    exif = Picture.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    Picture.fromarray(pixels).save(out, "JPEG", exif=exif, quality=95)
    return out.getvalue()


def is_turned(ds: larder.Dataset | larder.Mixture, tensor: str, orient: bool | None = None) -> bool:
    decode = {tensor: larder.Image(16, crop="stretch", orient=orient)}
    (batch,) = ds.loader(1, decode=decode, output="numpy")
    row = batch[tensor][0]
    return bool(row[:, -1].mean() > 200 and row[:, 0].mean() < 50)


def test_orientation_counts_if_it_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1.jpg").write_bytes(stored_turned())
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    caplog.clear()
    assert is_turned(ds, "data", True)
    assert not is_turned(ds, "data", False)
    assert not caplog.messages
    assert not is_turned(ds, "data")
    (told,) = caplog.messages
    assert "orient=True turns such pictures upright" in told


def test_orientation_counts_in_image_columns_of_hugging_face(tmp_path: Path) -> None:
    """As in `datasets`, which turns pictures when it decodes them."""
    features = {"photo": {"_type": "Image"}, "other": {"bytes": {"dtype": "binary"}}}
    value = {"bytes": stored_turned()}
    table = pa.table({"photo": [value], "other": [value]})
    noted = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": noted}), tmp_path / "0.parquet")
    ds = larder.open(f"file://{tmp_path}", cluster="none")
    assert is_turned(ds, "photo.bytes")
    assert is_turned(larder.mix({ds: 1.0}), "photo.bytes")
    assert not is_turned(ds, "photo.bytes", False)
    assert not is_turned(ds, "other.bytes")


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
        (
            {"decode": {"jpg": larder.Image(8, part=2.0)}},
            "decode can't be read: a center crop of 2",
        ),
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
    with pytest.raises(larder.InvalidArgument, match="part is nan"):
        larder.Image(8, part=float("nan"))
    with pytest.raises(larder.InvalidArgument, match="crop is 'middle'"):
        larder.Image(8, crop="middle")  # type: ignore[arg-type]
    with pytest.raises(larder.InvalidArgument, match="filter is 'cubic'"):
        larder.Image(8, filter="cubic")  # type: ignore[arg-type]
    with pytest.raises(larder.InvalidArgument, match="frames is 0"):
        larder.Audio(0)
