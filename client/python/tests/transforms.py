"""Transforms that the tests hand to loaders; shared by several modules of them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import larder


def augment(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A sample made float, with noise, and the noise itself."""
    noise = rng.random(4)
    image = sample["image"].astype(np.float32) + np.float32(noise[0])
    return {"image": image, "label": sample["label"], "noise": noise}


def same(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def noise(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Only the label, and two random numbers."""
    return {"label": sample["label"], "noise": rng.integers(0, 2**63, size=2)}


def flip(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A batch with a number that is its own, something that is no array, and its images flipped."""
    names = [f"image-{label}" for label in batch["label"]]
    return {"names": names, **batch, "image": batch["image"][:, :, ::-1], "once": rng.random(1)}


def fail_at_40(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["label"] == 40:
        raise KeyError("no caption")
    return sample


def hang_at_40(sample: dict[str, Any]) -> dict[str, Any]:
    while sample["label"] == 40:
        time.sleep(1)
    return sample


def ragged(sample: dict[str, Any]) -> dict[str, Any]:
    return {"caption": np.zeros(int(sample["label"]) % 3)}


def wrong(sample: dict[str, Any]) -> Any:
    return sample["image"]


def name(_: dict[str, Any]) -> dict[str, Any]:
    """Values of a type that only numpy has."""
    return {"name": np.array("some")}


class Table:
    """As a table of pandas: it can become an array, and has no type as a whole."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.zeros(3)


def table(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "table": Table()}


def in_place(sample: dict[str, Any]) -> dict[str, Any]:
    sample["image"] //= 2
    return sample


def tokenise(sample: dict[str, Any]) -> dict[str, Any]:
    text = sample["text"][:50].astype(np.int32)
    return {
        "text": text,
        "pairs": larder.Ragged.of([text[: len(text) // 2 * 2].reshape(-1, 2)]),
        "padded": np.pad(text, (0, 50 - len(text))),
        "label": sample["label"],
    }


def count_tokens(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "tokens": batch["text"].lengths}
