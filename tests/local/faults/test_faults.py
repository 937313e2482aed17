"""What must be survived, on one job without torch that lives through it all, one fault after the other; a shorter story
with torch is told in `test_sizes`.

Each fault waits until all train, hurts them, and reads from the ranks' own traces that training went on from the last
checkpoint with the right ranks and nothing of the old world alive (`Training.check`); `events` must say why.
"""

from __future__ import annotations

import contextlib
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outrider.runtime.processes import is_alive
from tests.local import plain
from tests.local.chapters import live_through
from tests.local.training import Training, kill, members, one_job, pids, until

pytestmark = pytest.mark.slow
SIZE = 3
FLAGS = ("--nnodes", str(SIZE), "--max-restarts", "100")


def a_rank_is_killed(job: Training) -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        restart, world = job.training(SIZE)
        mark = job.mark()
        kill(pids(world)[1], number)
        job.event("WorkerExited", mark, "Rank 1", number.name)
        again, new = job.training(SIZE, after=restart)
        assert again == restart + 1
        assert members(new) == members(world)


def a_rank_ends_with_an_error(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(2, "sys.exit(1)")
    event = job.event("WorkerExited", mark, "Rank 2", "exited with code 1")
    assert event["member"] == members(world)[2]
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    assert len({pid for pid in pids(world) if is_alive(pid)}) == 0


def a_rank_raises_and_its_exception_is_told(job: Training) -> None:
    restart, _ = job.training(SIZE)
    mark = job.mark()
    job.order(0, "raise ArithmeticError('the loss is not finite')")
    job.event("WorkerExited", mark, "Rank 0", "ArithmeticError: the loss is not finite")
    job.training(SIZE, after=restart)


def two_ranks_at_once_are_one_restart(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    kill(pids(world)[1])
    with contextlib.suppress(ProcessLookupError):  # it may have been stopped by then
        kill(pids(world)[2])
    job.event("WorkerExited", mark, "was killed by SIGKILL")
    again, _ = job.training(SIZE, after=restart)
    assert again == restart + 1


def a_second_fault_comes_during_recovery(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    kill(pids(world)[0])
    job.event("GenerationStarted", mark, members(world)[2])

    def forked_anew() -> list[int]:
        """The status may still name a process of an earlier world for a second."""
        workers = job.member(members(world)[2])["pids"]["workers"]
        return [pid for pid in workers if pid not in pids(world) and is_alive(pid)]

    kill(until(forked_anew)[0])
    job.event("WorkerExited", mark, "Rank 2")
    again, _ = job.training(SIZE, after=restart + 1)
    assert again == restart + 2


def a_template_is_killed_and_made_anew_in_its_member(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[2]
    old = job.template(victim)
    kill(old)
    job.event("TrainerLost", mark, victim, f"pid {old}")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    assert job.template(victim) != old


@contextmanager
def a_group() -> Iterator[Path]:
    """A group of cgroup v2, where this machine lets us make one."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if " cgroup2 " in line]
    group = Path(places[0] if places else "/nowhere", f"outrider-{uuid.uuid4().hex[:8]}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v2 can be made: {error}")
    try:
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def a_container_of_which_the_kernel_ends_all_at_once_is_one_restart(job: Training) -> None:
    """As cgroup v2 ends it where a kubelet sets memory.oom.group: ranks and template in one moment (docs/adr/0032)."""
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[1]
    old, sidecar = job.template(victim), job.sidecar(victim)
    held = [old, pids(world)[1]]
    with a_group() as group:
        for pid in held:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "cgroup.kill").write_text("1")
        job.event("TrainerLost", mark, victim, f"pid {old}")
        again, new = job.training(SIZE, after=restart)
    assert (again, members(new)) == (restart + 1, members(world))
    assert job.sidecar(victim) == sidecar
    assert not any(map(is_alive, held))


def a_sidecar_is_killed_and_training_does_not_notice(job: Training) -> None:
    """After steps that take 0.02 s each: the trainer has ended in the chapter before, and ends of both within 0.3 s are
    those of a machine."""
    restart, world = job.training(SIZE, more=50)
    mark = job.mark()
    victim = members(world)[1]
    old = job.sidecar(victim)
    kill(old)
    job.event("PodRestarted", mark, victim, "RestartedSidecar")
    until(lambda: job.sidecar(victim) not in (0, old) and job.member(victim)["state"] == "running", job.story)
    more = len(world[0]) + 5
    again, same = job.training(SIZE, more=more)
    assert (again, pids(same)) == (restart, pids(world))


def a_rank_is_killed_right_after_a_sidecar_came_back(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[0]
    kill(job.sidecar(victim))
    job.event("PodRestarted", mark, victim)
    kill(pids(world)[0])
    job.event("WorkerExited", mark, "Rank 0", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def a_master_is_killed_and_training_does_not_notice(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark, old = job.mark(), job.master()
    kill(old)
    job.event("GenerationAdopted", mark)
    assert job.master() != old
    again, same = job.training(SIZE, more=len(world[0]) + 5)
    assert (again, pids(same)) == (restart, pids(world))
    kill(pids(world)[0])
    job.event("WorkerExited", mark, "Rank 0", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def a_rank_is_killed_while_there_is_no_master(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    kill(job.master())
    kill(pids(world)[2])
    job.event("WorkerExited", mark, "Rank 2", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def a_member_is_killed_and_replaced_with_the_next_id_and_its_rank(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[1]
    hit = job.signal_tree(victim, signal.SIGKILL)
    job.event("MemberLost", mark, victim)
    _, new = job.training(SIZE, after=restart)
    assert number_of(new[1][0].member) > max(map(number_of, members(world)))
    assert [new[rank][0].member for rank in (0, 2)] == [members(world)[rank] for rank in (0, 2)]
    assert not [pid for pid in hit if is_alive(pid)]
    assert "RestartedSidecar" not in job.told(mark)


def a_frozen_member_is_left_out_and_does_not_disturb_when_it_thaws(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[2]
    hit = job.signal_tree(victim, signal.SIGSTOP)
    job.allowed_old = hit
    job.event("MemberSilent", mark, victim)
    again, new = job.training(SIZE, after=restart)
    assert victim not in members(new)
    thawed = job.mark()
    for pid in hit:
        if is_alive(pid):
            kill(pid, signal.SIGCONT)
    until(lambda: not [pid for pid in hit if pid in pids(world) and is_alive(pid)], job.story)
    still, same = job.training(SIZE, more=len(new[0]) + 10)
    assert (still, pids(same)) == (again, pids(new)), job.told(thawed)


def a_member_that_is_cut_off_stops_its_rank_by_itself_and_joins_again(job: Training) -> None:
    """Its master and its peers' sidecars are all frozen at once: to it, that is the same."""
    restart, world = job.training(SIZE)
    victim, others = members(world)[1], [members(world)[0], members(world)[2]]
    mark = job.mark()
    frozen = [job.master(), *map(job.sidecar, others)]
    log = job.job_folder / "members" / victim / "sidecar.log"
    try:
        for pid in frozen:
            kill(pid, signal.SIGSTOP)
        until(lambda: not is_alive(pids(world)[1]), lambda: f"the rank of {victim} to end: {log.read_text()[-4000:]}")
    finally:
        for pid in frozen:
            kill(pid, signal.SIGCONT)
    event = job.event("MemberIsolated", mark, f"{victim} reports: this member was cut off: neither the master nor")
    assert event["member"] == victim
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    assert [e["member"] for e in job.events(mark) if e["kind"] == "MemberIsolated"] == [victim]


def it_is_all_on_record_and_the_job_ends_well(job: Training) -> None:
    told = job.outrider("events", job.job)
    assert "WorkerExited" in told
    faults = job.status()["faults"]
    assert {"WorkerExited", "TrainerLost", "MemberLost", "MemberSilent"} <= {fault["kind"] for fault in faults}
    job.end_well()
    assert job.status()["exit_code"] == 0


def number_of(member: str) -> int:
    return int(member.rpartition("-")[2])


def test_a_job_lives_through_the_death_of_each_of_its_parts(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with one_job(tmp_path, *FLAGS, script=plain.SCRIPT) as job:
        live_through(
            subtests,
            job,
            a_rank_is_killed,
            a_rank_ends_with_an_error,
            a_rank_raises_and_its_exception_is_told,
            two_ranks_at_once_are_one_restart,
            a_second_fault_comes_during_recovery,
            a_template_is_killed_and_made_anew_in_its_member,
            a_container_of_which_the_kernel_ends_all_at_once_is_one_restart,
            a_sidecar_is_killed_and_training_does_not_notice,
            a_rank_is_killed_right_after_a_sidecar_came_back,
            a_master_is_killed_and_training_does_not_notice,
            a_rank_is_killed_while_there_is_no_master,
            a_member_that_is_cut_off_stops_its_rank_by_itself_and_joins_again,
            a_member_is_killed_and_replaced_with_the_next_id_and_its_rank,
            a_frozen_member_is_left_out_and_does_not_disturb_when_it_thaws,
            it_is_all_on_record_and_the_job_ends_well,
        )


@pytest.mark.exhaustive
@pytest.mark.xdist_group("timing")
def test_a_master_that_is_stopped_for_20_s_evicts_nobody(tmp_path: Path) -> None:
    with one_job(tmp_path, *FLAGS, script=plain.SCRIPT) as job:
        restart, world = job.training(SIZE)
        mark, master = job.mark(), job.master()
        over = time.monotonic() + 20
        kill(master, signal.SIGSTOP)
        try:
            until(lambda: time.monotonic() > over, "20 s")
        finally:
            kill(master, signal.SIGCONT)
        job.event("MasterStalled", mark, "The master was paused for")
        again, same = job.training(SIZE, more=len(world[0]) + 60)
        assert (again, pids(same)) == (restart, pids(world))
        assert job.master() == master
        told = {event["kind"] for event in job.events(mark)}
        assert not told & {
            "MemberSilent",
            "MemberLost",
            "SilentMemberDeleted",
            "ReplacementCreated",
            "GenerationStarted",
        }
