"""The seeds that every test run plays, and further ones that `make test-all` plays; `python -m tests.simulation --seeds
10000 --jobs 2` plays more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.simulation.__main__ import try_seed
from tests.simulation.handing_over import HandingOver
from tests.simulation.outages import OutageWorld
from tests.simulation.ps import PsWorld
from tests.simulation.two_releases import TwoReleases, importable

FOUND = (597, 1140, 1218, 2364, 2565, 2848, 2886, 4066, 4550, 4667, 5245, 8828, 9593, 30347)
FOUND_IN_PS_JOBS = (15, 300)
FOUND_IN_OUTAGES = (448,)
"""Seeds by which a bug was found, of a core or of the simulation itself, which is mended."""


def _by_ten(first: int, further: int, end: int) -> list[ParameterSet]:
    """Ten seeds a test; those from `further` on are exhaustive."""
    return [
        pytest.param(each, marks=pytest.mark.exhaustive if each >= further else ()) for each in range(first, end, 10)
    ]


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_has_found_a_bug_finds_none_any_more(seed: int) -> None:
    assert not try_seed(seed)[1]


@pytest.mark.parametrize("seed", FOUND_IN_PS_JOBS)
def test_a_seed_that_has_found_a_bug_of_ps_jobs_finds_none_any_more(seed: int) -> None:
    assert not try_seed(seed, PsWorld)[1]


@pytest.mark.parametrize("seed", FOUND_IN_OUTAGES)
def test_a_seed_that_has_found_a_bug_past_the_lease_finds_none_any_more(seed: int) -> None:
    assert not try_seed(seed, OutageWorld)[1]


@pytest.mark.parametrize("first", _by_ten(0, 20, 400))
def test_no_law_is_broken_and_training_goes_on_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, first + 10):
        _, story = try_seed(seed)
        assert not story, f"seed {seed}:\n{story}"


@pytest.mark.parametrize("first", _by_ten(0, 10, 80))
def test_no_law_of_ps_jobs_is_broken_and_all_train_again(first: int) -> None:
    for seed in range(first, first + 10):
        _, story = try_seed(seed, PsWorld)
        assert not story, f"seed {seed}:\n{story}"


@pytest.mark.parametrize("first", _by_ten(0, 10, 300))
def test_who_has_read_a_status_would_save_the_same(first: int) -> None:
    for seed in range(first, first + 10):
        world = HandingOver(seed)
        world.run()
        assert world.handed_over


@pytest.mark.parametrize("first", _by_ten(0, 10, 60))
def test_there_is_one_world_at_a_time_also_where_one_of_two_masters_is_cut_off_from_the_api_server_alone(
    first: int,
) -> None:
    begun = 0
    for seed in range(first, first + 10):
        world = OutageWorld(seed)
        world.run()
        begun += world.laws.begun_past_the_lease
    assert begun, "nothing was begun past a Lease: these seeds show nothing"


@pytest.mark.exhaustive
def test_no_law_is_broken_where_masters_and_sidecars_are_of_this_release_and_the_one_before(tmp_path: Path) -> None:
    releases: Counter[str] = Counter()
    with importable(tmp_path):
        for seed in range(40):
            world = TwoReleases(seed)
            world.run()
            releases += world.releases
    assert len(releases) == 4
    assert min(releases.values()) > 40, releases


def test_a_seed_is_the_same_story_each_time() -> None:
    from tests.simulation.world import World

    one, two = World(5), World(5)
    one.run()
    two.run()
    assert one.story(400) == two.story(400)
