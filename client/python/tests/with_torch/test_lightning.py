"""Lightning fits over a loader: every epoch another order, each sample once, exact resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

import larder
from harness import Node
from order import Job
from test_ranks import torchrun


class Recorder(lightning.LightningModule):
    """A model that remembers which samples it was shown."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def train_dataloader(self) -> larder.Loader:
        ds = larder.open(self.job.uri, cluster=self.job.cluster)
        return ds.loader(self.job.batch_size, shuffle=self.job.shuffle, seed=self.job.seed)

    def training_step(self, batch: larder.Batch) -> torch.Tensor:
        self.seen.append(batch["label"].tolist())
        return self.layer(batch["label"].float()[:, None] / 300).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def trainer(**options: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        **options,
    )


def test_two_epochs_are_those_of_the_rust_client(node: Node) -> None:
    model = Recorder(Job(node.address, 1, batch_size=25))
    trainer(max_epochs=2).fit(model)
    assert model.seen == model.job.batches(0, 0) + model.job.batches(0, 1)


class Captioned(Recorder):
    """A model with batches of more than tensors."""

    def train_dataloader(self) -> larder.Loader:
        ds = larder.open(self.job.uri, cluster=self.job.cluster)
        options = {"seed": self.job.seed, "batch_transform": captioned}
        return ds.loader(self.job.batch_size, shuffle=self.job.shuffle, **options)


def captioned(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "captions": [str(label) for label in batch["label"]]}


def test_batches_with_more_than_tensors_are_fitted(node: Node) -> None:
    model = Captioned(Job(node.address, 1, batch_size=25))
    trainer(max_epochs=1).fit(model)
    assert model.seen == model.job.batches(0, 0)


class Killed(Exception):
    """Raised to end a training in mid-epoch."""


class SaveAndDie(lightning.Callback):
    """Saves a checkpoint after some steps, trains on a little, and dies."""

    def __init__(self, steps: int, path: Path) -> None:
        self.steps = steps
        self.path = path

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps:
            trainer.save_checkpoint(self.path)
        if trainer.global_step == min(self.steps + 2, 24):
            raise Killed


@pytest.mark.parametrize("steps", [1, 5, 11, 12, 17, 23])
def test_checkpoint_resumes_at_the_next_batch(steps: int, node: Node, tmp_path: Path) -> None:
    job = Job(node.address, 1, batch_size=25)
    first, second = Recorder(job), Recorder(job)
    path = tmp_path / "middle.ckpt"
    with pytest.raises(Killed):
        trainer(max_epochs=2, callbacks=SaveAndDie(steps, path)).fit(first)
    trainer(max_epochs=2).fit(second, ckpt_path=path, weights_only=False)
    assert first.seen[:steps] + second.seen == job.batches(0, 0) + job.batches(0, 1)


def test_ranks_of_ddp_read_their_parts(node: Node, tmp_path: Path) -> None:
    ranks = torchrun(2, tmp_path, node.address, str(tmp_path), script="lightning_rank.py")
    job = Job(node.address, 2, batch_size=25)
    for number, seen in enumerate(ranks):
        assert seen == job.batches(number, 0) + job.batches(number, 1)


def fit_as_rank(cluster: str, folder: str) -> None:
    """The work of each rank of the DDP test."""
    model = Recorder(Job(cluster, 2, batch_size=25))
    one = trainer(max_epochs=2, strategy="ddp", devices=2)
    one.fit(model)
    Path(folder, f"{one.global_rank}.json").write_text(json.dumps(model.seen))
