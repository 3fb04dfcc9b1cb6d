"""A process that runs parts of jobs. It reads a JSON list of them, and answers with a list: the
batches of each rank, and the state of the job afterwards."""

from __future__ import annotations

import json
import sys
from typing import Any

import larder
import transforms


def run(dataset: larder.Dataset, part: dict[str, Any]) -> dict[str, Any]:
    """All ranks of a job, until `stop` batches (or all) are handed out."""
    content = mixture(dataset) if part["mixed"] else dataset
    delivered: list[list[int]] = []
    states = []
    for rank in range(part["world_size"]):
        loader = content.loader(
            part["batch_size"],
            shuffle=part["shuffle"],
            seed=part["seed"],
            rank=rank,
            world_size=part["world_size"],
            last=part["last"],
            output="numpy",
            transform=transforms.noise if part["transform"] else None,
            workers=part["workers"],
        )
        loader.set_epoch(part["epoch"])
        if part["state"] is not None:
            loader.load_state_dict(part["state"])
        batches = iter(loader)
        for _ in range(part["stop"]):
            batch = next(batches, None)
            if batch is None:
                break
            assert batch["label"].tolist() == batch.samples.tolist()
            delivered += rows(batch)
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    return {"delivered": delivered, "state": states[0], "epoch": loader.epoch}


def mixture(dataset: larder.Dataset) -> larder.Mixture:
    """One third of the samples as often as the rest: each epoch draws it twice."""
    parts = {dataset.select(range(100)): 0.5, dataset.select(range(100, 300)): 0.5}
    return larder.mix(parts, seed=3, stop="all")


def rows(batch: larder.Batch) -> list[list[int]]:
    """For each row its dataset, its sample, and its random numbers."""
    count = len(batch.samples) - batch.padding
    sources = [0] * count if batch.sources is None else batch.sources.tolist()
    noise = batch["noise"].tolist() if "noise" in batch else [[]] * count
    columns = zip(sources[:count], batch.samples.tolist(), noise, strict=False)
    return [[source, sample, *numbers] for source, sample, numbers in columns]


if __name__ == "__main__":
    opened = larder.open("s3://data/images", cluster=sys.argv[1])
    json.dump([run(opened, part) for part in json.load(sys.stdin)], sys.stdout)
