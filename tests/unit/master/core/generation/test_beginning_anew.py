"""A job that is started again after its end, from the status that was kept for that."""

from __future__ import annotations

import json
from typing import Any

from outrider.master.core.k8s.elasticjob.begin_anew import begun
from outrider.master.core.k8s.elasticjob.status import left_by
from outrider.wire.ids import Generation
from outrider.wire.messages.generation import Stop
from tests.unit.master.core.play import Play, running


def left(play: Play) -> Any:
    return play.handed_over()


def begun_again(ended: Play) -> Play:
    """All of the job's pods are gone, and new ones come."""
    status = {"saved": {"term": ended.term, "state": json.dumps(left(ended))}}
    return Play(ended.spec, term=2, saved=left_by(begun({"status": status}, "2026-03-01T00:00:02Z")), now=ended.now + 9)


def test_its_generations_continue_above_every_used_or_reserved_number() -> None:
    before = running(4)
    before.crash("worker-1")
    before.until_next(4)
    before.run(15)
    term, reserved = left(before)["reserved"]
    assert (term, reserved) == (1, 12)
    after = begun_again(before)
    after.until(lambda: after.is_running(4))
    assert after.generation == Generation(2, reserved + 1)
    assert after.announced("JobStarted")
    assert not after.announced("MasterStarted"), "no member runs for which a master could wait"
    assert not after.sent(Stop)


def test_it_has_no_faults_and_no_steps_yet_and_its_pods_get_new_ids() -> None:
    before = running(4)
    before.crash("worker-1")
    before.until_next(4)
    before.run(15)
    after = begun_again(before)
    after.until(lambda: after.is_running(4))
    assert (after.faults(), after.restarts_used()) == ([], 0)
    assert after.status()["restarts"] == 0
    assert left(after)["version"] > left(before)["version"]
    assert not set(after.members()) & set(before.members())


def test_a_master_that_follows_counts_from_there_too() -> None:
    after = begun_again(running(4))
    after.until(lambda: after.is_running(4))
    following = Play(after.spec, term=3, saved=json.loads(json.dumps(after.saved)), actors=after.actors, now=after.now)
    following.run(20)
    assert following.announced("GenerationAdopted")
    assert following.status()["restarts"] == 0
