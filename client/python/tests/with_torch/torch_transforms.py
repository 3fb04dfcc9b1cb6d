"""Transforms of torch tensors, shared by several modules of tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def to_bfloat16(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Tensors, numbers and arrays of numpy, side by side."""
    assert isinstance(sample["image"], torch.Tensor)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    return {
        "image": sample["image"].to(torch.bfloat16) / 2,
        "label": sample["label"],
        "half": np.float32(sample["label"]) / 2,
        "noise": torch.rand(3, generator=generator),
    }


def name(_: dict[str, Any]) -> dict[str, Any]:
    """Values of a type that torch lacks."""
    return {"name": np.array("some")}


def center(batch: dict[str, Any]) -> dict[str, Any]:
    assert batch["image"].dtype == torch.bfloat16
    return {**batch, "mean": batch["image"].float().mean(dim=(1, 2, 3))}


def several(batch: dict[str, Any]) -> dict[str, Any]:
    """Tensors that are more than one array each."""
    label = batch["label"].float()
    rows = torch.nested.nested_tensor([label[:2], label[2:5]], layout=torch.jagged)
    return {"label": label, "rows": rows, "sparse": label.to_sparse()}
