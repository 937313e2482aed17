"""How far a job has come, and with how many members: what its record of progress is made of. Of both kinds of jobs."""

from __future__ import annotations

from outrider.master.core import job_kinds
from tests.unit.master.core.play import job, running
from tests.unit.master.core.ps_play import ps_job, training


def test_a_job_that_has_not_begun_has_no_step_and_no_members() -> None:
    for spec, generation in ((job(), "0.0"), (ps_job(), "-")):
        assert job_kinds.position(job_kinds.new(spec)) == job_kinds.Position(generation, 0, 0, None, 0.0)


def test_the_newest_step_is_told_with_its_moment() -> None:
    play = running(4)
    play.run(5)
    before = play.position()
    assert (before.generation, before.members) == (str(play.generation), 4)
    assert before.stepped_at is not None
    play.run(5)
    after = play.position()
    assert after.stepped_at is not None
    assert after.step > before.step > 0
    assert before.stepped_at < after.stepped_at <= play.now


def test_members_of_a_ps_job_are_counted_as_they_run() -> None:
    play = training()
    play.run(5)
    found = play.position()
    assert (found.generation, found.members) == ("-", len(play.status()["seats"]))
    assert found.step > 0
    assert found.stepped_at is not None
