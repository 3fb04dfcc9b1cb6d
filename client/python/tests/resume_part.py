"""A process that runs parts of jobs: reads a JSON list of them, and answers with one of what each
rank was handed out and where the job then stood."""

from __future__ import annotations

import json
import sys
from typing import Any

import larder


def run(dataset: larder.Dataset, part: dict[str, Any]) -> dict[str, Any]:
    """All ranks of a job, until `stop` batches (or all) are handed out."""
    delivered: list[int] = []
    states = []
    for rank in range(part["world_size"]):
        loader = dataset.loader(
            part["batch_size"],
            shuffle=part["shuffle"],
            seed=part["seed"],
            rank=rank,
            world_size=part["world_size"],
            last=part["last"],
            output="numpy",
        )
        if part["state"] is not None:
            loader.load_state_dict(part["state"])
        batches = iter(loader)
        for _ in range(part["stop"]):
            batch = next(batches, None)
            if batch is None:
                break
            rows = len(batch.samples) - batch.padding
            labels = batch["label"].tolist()
            assert labels == batch.samples.tolist()
            delivered += labels[:rows]
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    return {"delivered": delivered, "state": states[0], "epoch": loader.epoch}


if __name__ == "__main__":
    opened = larder.open("s3://data/images", cluster=sys.argv[1])
    json.dump([run(opened, part) for part in json.load(sys.stdin)], sys.stdout)
