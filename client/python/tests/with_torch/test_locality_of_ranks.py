"""Ranks of real torch.distributed jobs agree on a locality."""

from __future__ import annotations

from typing import Any

import pytest

from harness import Node
from test_ranks import torchrun


@pytest.fixture(scope="module", params=[2, 4])
def ranks(
    request: pytest.FixtureRequest,
    two_nodes: list[Node],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Any]:
    """The findings of the ranks of a job that reads from two nodes."""
    folder = tmp_path_factory.mktemp("ranks")
    found = torchrun(request.param, folder, two_nodes[0].address, str(folder), "locality")
    return [of["locality"] for of in found]


def whole(ranks: list[Any], way: str) -> list[list[int]]:
    """The samples of each global batch, in order of their numbers."""
    batches = zip(*(of[way] for of in ranks), strict=True)
    return [sorted(sample for rank in batch for sample in rank) for batch in batches]


def test_ranks_agree_on_a_locality_and_keep_global_batches(
    ranks: list[Any],
) -> None:
    for of in ranks:
        assert of["found"] == of["made"] == of["workers"] == of["order"]
        assert [len(batch) for batch in of["found"]] == [len(batch) for batch in of["slices"]]
    assert whole(ranks, "found") == whole(ranks, "slices")
    assert any(of["found"] != of["slices"] for of in ranks)


def test_different_localities_raise_an_error_on_all_ranks(ranks: list[Any]) -> None:
    assert all("rows would be lost and repeated" in of["differ"] for of in ranks)


def test_failure_of_the_first_rank_is_raised_on_all_ranks(ranks: list[Any]) -> None:
    assert all("'nobody'" in of["nobody"] or '"nobody"' in of["nobody"] for of in ranks)


@pytest.mark.parametrize("ranks", [4], indirect=True)
def test_replicas_in_a_mesh_get_the_same_batches(ranks: list[Any]) -> None:
    for first, second in (ranks[:2], ranks[2:]):
        assert first["mesh"] == second["mesh"]
    assert ranks[0]["mesh"] != ranks[2]["mesh"]
    assert all("may be replicas" in of["part"] for of in ranks)
