"""What encoded rows become in a batch: pictures and sounds of one shape.

Thread rule: immutable values.
Non-goals: the decoding itself, which the native loader does on its own threads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, get_args

from larder import _arguments

#: The part of a picture that a row shows.
Crop = Literal["center", "random", "stretch"]
#: The channels of a picture.
Color = Literal["rgb", "gray"]
#: How pixels of a row are made of those of the picture.
Filter = Literal["bilinear", "nearest"]
#: The numbers of a row.
Dtype = Literal["uint8", "uint16"]
#: The treatment of a sample that can't be decoded.
Bad = Literal["error", "skip"]

#: The largest side of a row: a limit of the native module.
_SIDE_MAX = 1 << 14
#: The most threads that decode by default.
_THREADS_MAX = 16


@dataclass(frozen=True)
class Image:
    """A picture becomes numbers of the shape ``[height, width, channels]``.

    JPEG, PNG and WebP are known by their first bytes. Transparency is dropped. All pictures of one
    sample draw the same random numbers: an image and a mask of its size get the same crop and flip.

    Attributes:
        size: the side of a square, or height and width.
        crop: ``"center"`` shows the middle, as ``Resize(256)`` and ``CenterCrop(224)`` of
            torchvision do for a size of 224. ``"random"`` is torchvision's ``RandomResizedCrop``,
            with other random numbers: they depend on seed, epoch and sample alone. ``"stretch"``
            shows the whole picture.
        flip: whether half of the pictures are mirrored left to right, drawn in the same way.
        color: ``"rgb"``, or ``"gray"`` for one channel. A palette becomes its colours.
        filter: ``"bilinear"`` is torchvision's with ``antialias=True``. ``"nearest"`` takes the
            nearest pixel, so labels of a mask stay labels.
        dtype: ``"uint8"``, or ``"uint16"`` for PNGs of 16 bits, of which ``"uint8"`` keeps the
            upper byte. Other pictures are then errors.
        orient: whether pictures are turned as their EXIF orientation says. By default only those
            of an ``Image`` column of Hugging Face ``datasets`` are, as ``datasets`` does itself.
        part: of ``"center"``, the part of the shorter side that a row shows, from 0.01 to 1.
        scale: of ``"random"``, the bounds of the crop's area as parts of the picture's.
        ratio: of ``"random"``, the bounds of its width divided by its height.
    """

    size: int | tuple[int, int]
    _: KW_ONLY
    crop: Crop = "center"
    flip: bool = False
    color: Color = "rgb"
    filter: Filter = "bilinear"
    dtype: Dtype = "uint8"
    orient: bool | None = None
    part: float = 0.875
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _arguments.of_length("size", self._sides(), 2, "a side, or height and width")
        for side in self._sides():
            _arguments.integer("size", side, 1, _SIDE_MAX)
        _arguments.flag("flip", self.flip)
        _arguments.optional(_arguments.flag, "orient", self.orient)
        _arguments.choice("crop", self.crop, get_args(Crop))
        _arguments.choice("color", self.color, get_args(Color))
        _arguments.choice("filter", self.filter, get_args(Filter))
        _arguments.choice("dtype", self.dtype, get_args(Dtype))
        _arguments.real("part", self.part)
        for name in ("scale", "ratio"):
            bounds = _arguments.of_length(name, getattr(self, name), 2, "two finite numbers")
            for bound in bounds:
                _arguments.real(name, bound)

    def _sides(self) -> tuple[int, int]:
        return self.size if isinstance(self.size, tuple) else (self.size, self.size)

    def _native(self, upright: bool) -> dict[str, Any]:
        """The options of the native loader. ``upright`` is the default of ``orient``."""
        height, width = self._sides()
        bounds = (self.part, 0.0, 0.0, 0.0)
        if self.crop == "random":
            bounds = (*self.scale, *self.ratio)
        image = {
            "height": height,
            "width": width,
            "crop": self.crop,
            "bounds": bounds,
            "flip": self.flip,
            "gray": self.color == "gray",
            "nearest": self.filter == "nearest",
            "sixteen": self.dtype == "uint16",
            "orient": True if upright and self.orient is None else self.orient,
        }
        return {"image": image}


@dataclass(frozen=True)
class Audio:
    """A sound becomes 32-bit floats of the shape ``[channels, frames]``.

    WAV and FLAC are known by their first bytes. A shorter sound is followed by zeros.

    Attributes:
        frames: values of each channel.
        channels: the number that each sound must have. None is the mean of all, as one channel.
        start: of a longer sound, ``"begin"`` takes its first frames. ``"random"`` draws the first
            frame, by seed, epoch and sample alone.
        sample_rate: in hertz. Sounds of another rate are then errors: none is resampled.
    """

    frames: int
    _: KW_ONLY
    channels: int | None = None
    start: Literal["begin", "random"] = "begin"
    sample_rate: int | None = None

    def __post_init__(self) -> None:
        _arguments.integer("frames", self.frames, 1, 1 << 28)
        _arguments.choice("start", self.start, ("begin", "random"))
        if self.channels is not None:
            _arguments.integer("channels", self.channels, 1, 65_535)
        if self.sample_rate is not None:
            _arguments.integer("sample_rate", self.sample_rate, 1, (1 << 32) - 1)

    def _native(self, _: bool) -> dict[str, Any]:
        """The options of the native loader."""
        audio = {
            "frames": self.frames,
            "channels": self.channels,
            "random": self.start == "random",
            "sample_rate": self.sample_rate,
        }
        return {"audio": audio}


def pictures_of(features: Any, prefix: str = "") -> Iterator[str]:
    """The tensors of encoded pictures, by the features that ``datasets`` notes of its columns."""
    if not isinstance(features, Mapping):
        return
    for name, feature in features.items():
        if isinstance(feature, Mapping) and feature.get("_type") == "Image":
            yield f"{prefix}{name}.bytes"
        else:
            yield from pictures_of(feature, f"{prefix}{name}.")


def checked(name: str, value: Any) -> Mapping[str, Image | Audio]:
    """A user's mapping, if it is one."""
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and isinstance(kind, Image | Audio) for key, kind in value.items()
    ):
        wanted = "a dict from names of tensors to larder.Image or larder.Audio"
        raise _arguments.wrong(name, value, wanted)
    return value


def native(
    decode: Mapping[str, Image | Audio] | None, upright: Collection[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """A user's mapping as the native loader takes it.

    ``upright`` are the tensors whose pictures are turned by default.
    """
    return [(name, kind._native(name in upright)) for name, kind in (decode or {}).items()]


def prefetch_for(decode: Mapping[str, Any] | None) -> int:
    """Batches fetched ahead if the user does not say: each is decoded by a thread of its own."""
    if not decode:
        return 2
    return max(2, min(len(os.sched_getaffinity(0)), _THREADS_MAX))
