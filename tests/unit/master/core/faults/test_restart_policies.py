"""A role's restartPolicy determines which exits of its ranks end the job."""

from __future__ import annotations

import pytest

from outrider.master.core.spec import MASTER, RoleLimits, Rule
from tests.unit.master.core.play import Play, job, running


def is_over(play: Play) -> bool:
    play.until(lambda: play.ended() is not None or play.stage == "running", 10)
    play.run(5)
    return play.ended() is not None


@pytest.mark.parametrize(
    ("policy", "code", "ends"),
    [("ExitCode", 1, True), ("ExitCode", 127, True), ("ExitCode", 128, False), ("ExitCode", 143, False),
     ("ExitCode", 255, False), ("Never", 1, True), ("Never", 143, True), ("OnFailure", 1, False), ("Always", 1, False),
     ("", 1, False)],
)  # fmt: skip
def test_which_codes_end_the_job(policy: str, code: int, ends: bool) -> None:
    play = running(2, restart_policy=policy)
    play.crash("worker-1", code=code)
    assert is_over(play) is ends


def test_the_sentence_names_the_policy_and_the_role() -> None:
    play = running(2, restart_policy="ExitCode")
    play.crash("worker-1", code=1, error="ValueError", message="bad label")
    play.until(lambda: play.ended() is not None, 10)
    assert "exit code 1 is permanent under restartPolicy ExitCode of the role worker" in play.message
    assert play.exit_code == 1


def test_a_signal_counts_as_128_and_its_number() -> None:
    play = running(2, restart_policy="ExitCode")
    play.crash("worker-1", signal=11)
    assert not is_over(play)


def test_each_role_has_its_own_policy() -> None:
    for member, ends in (("master-0", True), ("worker-0", False)):
        play = Play(job(2, has_master=True, limits=(RoleLimits(MASTER, 5, None, "ExitCode"),)))
        play.until_running(2)
        play.run(2.0)
        play.crash(member, code=1)
        assert is_over(play) is ends


def test_rules_and_retryable_codes_take_precedence() -> None:
    for policy in ({"rules": (Rule((7,), "restart"),)}, {"retryable_codes": (7,)}):
        play = running(2, restart_policy="ExitCode", **policy)
        play.crash("worker-1", code=7)
        assert not is_over(play)


def test_effects_of_other_ranks_and_lost_members_are_not_failures_of_a_rank_itself() -> None:
    play = running(3, restart_policy="ExitCode")
    play.crash("worker-1", code=1, error="DistBackendError", message="Connection closed by peer")
    play.crash("worker-2", signal=9)
    assert not is_over(play)
    play = running(3, restart_policy="Never")
    play.crash("worker-2", signal=9)
    play.lose("worker-2")
    assert not is_over(play)


def test_a_repeated_retryable_code_is_not_a_crash_loop() -> None:
    play = running(2, restart_policy="ExitCode")
    for _ in range(4):
        play.crash("worker-1", code=200, step=0)
        play.until_running(2)
    assert not play.ended()
