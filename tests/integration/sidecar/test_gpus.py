"""What a member's ranks see of the GPUs that its machine's members share: a real sidecar's order to its template."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.wire.ids import Generation, RankIndex
from outrider.wire.messages.generation import Ready
from tests.integration.sidecar.bench import member, start_order, template

FIRST = Generation(1, 1)


@pytest.mark.parametrize(
    ("platform", "shares", "rank_index", "visible"),
    [
        ("local", "0,1;GPU-a;MIG-b", 0, "0,1"),
        ("local", "0,1;GPU-a;MIG-b", 2, "MIG-b"),
        ("local", "", 0, None),
        ("kubernetes", "0,1;GPU-a", 0, None),  # a pod has the GPUs of its own container
    ],
)
async def test_a_share_goes_by_the_rank_index_that_a_generation_gives(
    platform: str, shares: str, rank_index: int, visible: str | None
) -> None:
    async with member(OUTRIDER_PLATFORM=platform, OUTRIDER_GPUS=shares) as (master, sidecar):
        hook = await sidecar.hook()
        hook.say(template())
        await master.hears(Ready)
        master.send(replace(start_order(1, FIRST), rank_index=RankIndex(rank_index)))
        assert (await hook.hears("do"))["env"].get("CUDA_VISIBLE_DEVICES") == visible
