"""The verdict on a generation that a fault has ended, once its survivors have stopped. May the job go on?

Not where a rule of the user's says so, where the same error comes again and again before a step is made, or where the
budget of restarts is used up. What is no certain end of the script's own waits for a last word: the loss of a member
may still be told, and explains it.
"""

from __future__ import annotations

from outrider.master.core.faults import error_signature
from outrider.master.core.generation import job_end as generation_job_end
from outrider.master.core.generation import lifecycle
from outrider.master.core.spec import FAIL, RESTART
from outrider.master.core.state import budgets
from outrider.master.core.state import links as state_links
from outrider.master.core.state.generation import Episode, Failure, World
from outrider.master.core.state.job import State

LAST_WORD = 2.0
"""How long a failure of the whole job waits for a better explanation of what ended the ranks."""
FREE_PORT_CLASHES = 5
LOOK_AGAIN = 0.5
LAST_LOOK = 8.0
"""The same where it is being found out whether two members cannot see each other."""


# -- the cause ----------------------------------------------------------------------------------------------------
def first(failures: list[Failure]) -> Failure:
    """The cause: the earliest that is no effect, else the earliest."""
    return min(failures, key=earliest_cause)


def earliest_cause(failure: Failure) -> tuple[bool, float, int]:
    return (failure.is_effect, failure.at, failure.rank)


def sentence(failure: Failure) -> str:
    action, why = failure.verdict
    by_rule = f": {why}" if action == RESTART else ""  # what else a rule says is told when it is done
    who = str(failure.member) if failure.is_alone else f"Rank {failure.rank} on {failure.member}"
    return f"{who} {error_signature.describe(failure.exit)}{failure.note}{by_rule}."


# -- judgement ----------------------------------------------------------------------------------------------------
def settle(state: State) -> bool:
    """The survivors have stopped: may the job go on? False where it has failed, or waits for a last word on it."""
    episode = state.faults.episode
    world = state.world
    if episode is None or world is None or episode.generation != world.generation or episode.charged:
        return True
    if episode.again_at > state.now:
        state.deadlines.set(("last word", ""), episode.again_at)
        return False
    if episode.free:
        return True
    if any(error_signature.is_port_clash(f.exit) for f in episode.failures) and is_free_port_clash(state):
        episode.free = True
        return True
    return _judge(state, world, episode)


def why_no_input(state: State) -> str:
    if state.spec.has_stdin:
        return "its debugger was left, or its standard input has ended"
    return "ranks have no standard input under Outrider (`outrider run --stdin 0` gives it to rank 0)"


def has_restarts(state: State) -> bool:
    return budgets.left(state.faults.restarts, lifecycle.max_restarts(state), state.spec.restart_decay, state.now) > 0


def _judge(state: State, world: World, episode: Episode) -> bool:
    allowed = lifecycle.max_restarts(state)
    cause = first(episode.failures) if episode.failures else None
    for failure in sorted(episode.failures, key=earliest_cause):
        action, why = failure.verdict
        if action == FAIL:
            return _fail_unless_explained(state, episode, failure, why)
    if cause is not None and error_signature.asked_for_input(cause.exit):
        fail_with(state, cause, why_no_input(state))
        return False
    if cause is not None and _is_crash_loop(state, world, cause):
        step = cause.exit.step
        passed = f"was past step {step}" if world.made_step else "made a step"
        fail_with(
            state,
            cause,
            f"the same error ended {state.faults.same_error[1]} generations running, and none of them {passed}",
        )
        return False
    if not has_restarts(state):
        all_used = (
            f"all {allowed} restarts of the budget are used" if allowed > 1 else "the one restart allowed is used"
        )
        why = all_used if allowed else "no restart is allowed"
        return _fail_unless_explained(state, episode, cause, why)
    budgets.use(state.faults.restarts, state.spec.restart_decay, state.now)
    episode.charged = True
    return True


def _is_crash_loop(state: State, world: World, cause: Failure) -> bool:
    """Not where the user has said how many restarts there are."""
    signature = _signature(world, cause)
    known, count = state.faults.same_error
    state.faults.same_error = (signature, count + 1 if known == signature else 1)
    return bool(signature) and state.faults.same_error[1] >= state.spec.crash_loop and not state.spec.max_restarts_asked


def _signature(world: World, cause: Failure) -> str:
    """Equal for what comes again and again; empty where another try may go well. A job that trains has done something
    right: there it is an exception of the script's own alone, at the same place behind the same step."""
    end = cause.exit
    if not cause.signature or error_signature.is_of_outside(end):
        return ""
    if not world.made_step:
        return cause.signature
    return (
        f"{end.error_type}|{end.error_frame}|step {end.step}"
        if error_signature.is_its_own(end) and end.error_frame
        else ""
    )


def is_free_port_clash(state: State) -> bool:
    state.faults.port_clashes += 1
    if state.faults.port_clashes > FREE_PORT_CLASHES:
        return False
    state.announce("PortTaken", "The rendezvous port was taken by someone else: one more generation, on another port, "
                                "which costs no restart.")  # fmt: skip
    return True


def _fail_unless_explained(state: State, episode: Episode, cause: Failure | None, why: str) -> bool:
    """An exception of the script speaks for itself; for anything else the loss of a member may still be told."""
    is_certain = cause is not None and cause.exit.signal is None and not cause.is_effect
    patience = LAST_LOOK if state_links.is_undecided(state.links, state.now) else LAST_WORD
    if is_certain or state.now >= episode.began_at + patience:
        if cause is not None:
            fail_with(state, cause, why)
        else:
            generation_job_end.fail(state, 1, f"{episode.fault.reason.rstrip('.')}; {why}.")
        return False
    state.deadlines.set(("last word", ""), max(episode.began_at + LAST_WORD, state.now + LOOK_AGAIN))
    return False


def fail_with(state: State, cause: Failure, why: str) -> None:
    code = error_signature.exit_code(cause.exit)
    generation_job_end.fail(state, code, f"{sentence(cause).rstrip('.')}; {why}.", cause.exit.traceback)
