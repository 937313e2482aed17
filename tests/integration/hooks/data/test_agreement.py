"""All ranks begin at one position or none does, over a real torch store."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from training_hooks.data import rank_consensus

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("torch")]
POSITION = {"epoch": 0, "consumed": 48}


def agreed(offers: dict[int, Any], world: int, patience: float = 60.0) -> list[tuple[Any, str]]:
    """The result of each of these ranks; all of them ask at once."""
    from datetime import timedelta

    import torch.distributed as dist

    server = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60))
    found: dict[int, tuple[Any, str]] = {}

    def ask(rank: int) -> None:
        client = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=60))
        found[rank] = rank_consensus.agree(client, "1.1/key/1", world, offers[rank], patience)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in offers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in sorted(found)]


def test_a_position_that_one_rank_has_loaded_is_used_by_all() -> None:
    assert agreed({0: POSITION, 1: None, 2: None}, 3) == [(POSITION, "")] * 3


def test_a_position_that_all_ranks_have_loaded_is_used_by_all() -> None:
    assert agreed({0: POSITION, 1: dict(reversed(POSITION.items()))}, 2) == [(POSITION, "")] * 2


def test_without_a_loaded_position_there_is_none() -> None:
    assert agreed({0: None, 1: None}, 2) == [(None, "")] * 2


def test_ranks_with_different_positions_all_start_at_the_beginning() -> None:
    why = "the ranks have loaded different positions"
    assert agreed({0: POSITION, 1: {**POSITION, "consumed": 64}, 2: None}, 3) == [(None, why)] * 3


def test_if_one_rank_never_asks_no_rank_skips_samples() -> None:
    why = "not all ranks began to read their data within 0.5 s"
    assert agreed({0: POSITION, 1: None}, 3, patience=0.5) == [(None, why)] * 2
