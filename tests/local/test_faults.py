"""What must be survived, on one job of four members that stands through it all, one fault after the other.

Each test waits until the four train, hurts them, and reads from the ranks' own traces that training went on from the
last checkpoint with the right ranks and nothing of the old world alive (`Training.check`); `events` must say why.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.processes import is_alive
from tests.local.training import SCRIPT, Training, kill, members, pids, until

pytestmark = pytest.mark.slow
SIZE = 4


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    home = Path(tempfile.mkdtemp(prefix="or-"))
    training = Training(
        tmp_path_factory.mktemp("four"), home, "--nnodes", str(SIZE), "--max-restarts", "100", "--silent-after", "10"
    )
    try:
        yield training
    finally:
        training.close()
        shutil.rmtree(home)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_worker_process_that_is_killed(job: Training, number: signal.Signals) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    kill(pids(world)[1], number)
    job.event("WorkerExited", mark, "Rank 1", number.name)
    again, new = job.training(SIZE, after=restart)
    assert again == restart + 1
    assert members(new) == members(world)


def test_a_worker_process_that_ends_with_an_error(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    job.order(2, "sys.exit(1)")
    event = job.event("WorkerExited", mark, "Rank 2", "exited with code 1")
    assert event["member"] == members(world)[2]
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    assert len({pid for pid in pids(world) if is_alive(pid)}) == 0


def test_a_worker_process_that_raises_is_told_with_its_exception(job: Training) -> None:
    restart, _ = job.training(SIZE)
    mark = job.mark()
    job.order(0, "raise ArithmeticError('the loss is not finite')")
    job.event("WorkerExited", mark, "Rank 0", "ArithmeticError: the loss is not finite")
    job.training(SIZE, after=restart)


def test_two_worker_processes_at_once_are_one_restart(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    for rank in (1, 3):
        kill(pids(world)[rank])
    job.event("WorkerExited", mark, "was killed by SIGKILL")  # one: the other may have been stopped by then
    again, _ = job.training(SIZE, after=restart)
    assert again == restart + 1


def test_a_second_fault_during_recovery(job: Training) -> None:
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


def test_a_template_that_is_killed_is_made_anew_and_its_member_stays(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[2]
    old = job.template(victim)
    kill(old)
    job.event("TrainerLost", mark, victim, f"pid {old}")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)
    assert job.template(victim) != old


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of cgroup v2, where this machine lets us make one."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if " cgroup2 " in line]
    group = Path(places[0] if places else "/nowhere", f"outrider-{uuid.uuid4().hex[:8]}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no group of cgroup v2 can be made: {error}")
    yield group
    (group / "cgroup.kill").write_text("1")
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_container_of_which_the_kernel_ends_all_at_once_is_one_restart(job: Training, group: Path) -> None:
    """As cgroup v2 ends it where a kubelet sets memory.oom.group: ranks and template in one moment (docs/adr/0032)."""
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[1]
    old, sidecar = job.template(victim), job.sidecar(victim)
    held = [old, *(pid for rank, pid in enumerate(pids(world)) if members(world)[rank] == victim)]
    for pid in held:
        (group / "cgroup.procs").write_text(str(pid))
    (group / "cgroup.kill").write_text("1")
    job.event("TrainerLost", mark, victim, f"pid {old}")
    again, new = job.training(SIZE, after=restart)
    assert (again, members(new)) == (restart + 1, members(world))
    assert job.sidecar(victim) == sidecar
    assert not any(map(is_alive, held))


def test_a_sidecar_that_is_killed_comes_back_and_training_does_not_notice(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[1]
    old = job.sidecar(victim)
    kill(old)
    job.event("PodRestarted", mark, victim, "RestartedSidecar")
    until(lambda: job.sidecar(victim) not in (0, old) and job.member(victim)["state"] == "running", job.story)
    more = len(world[0]) + 5
    again, same = job.training(SIZE, more=more)
    assert (again, pids(same)) == (restart, pids(world))


def test_a_fault_right_after_a_sidecar_came_back(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[0]
    kill(job.sidecar(victim))
    job.event("PodRestarted", mark, victim)
    kill(pids(world)[0])
    job.event("WorkerExited", mark, "Rank 0", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def test_a_master_that_is_killed_comes_back_and_training_does_not_notice(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark, old = job.mark(), job.master()
    kill(old)
    job.event("GenerationAdopted", mark)
    assert job.master() != old
    again, same = job.training(SIZE, more=len(world[0]) + 5)
    assert (again, pids(same)) == (restart, pids(world))
    kill(pids(world)[3])
    job.event("WorkerExited", mark, "Rank 3", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def test_a_master_that_is_stopped_for_20_s_evicts_nobody(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark, master = job.mark(), job.master()
    over = time.monotonic() + 20
    kill(master, signal.SIGSTOP)
    try:
        until(lambda: time.monotonic() > over, "20 s")
    finally:
        kill(master, signal.SIGCONT)
    job.event("MasterStalled", mark, "The master itself did not run for")
    again, same = job.training(SIZE, more=len(world[0]) + 60)
    assert (again, pids(same)) == (restart, pids(world))
    assert job.master() == master
    told = {event["kind"] for event in job.events(mark)}
    assert not told & {"MemberSilent", "MemberLost", "MemberGivenUp", "ReplacementCreated", "GenerationStarted"}


def test_a_fault_while_there_is_no_master(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    kill(job.master())
    kill(pids(world)[2])
    job.event("WorkerExited", mark, "Rank 2", "SIGKILL")
    _, new = job.training(SIZE, after=restart)
    assert members(new) == members(world)


def test_a_rank_that_is_killed_in_its_save_leaves_the_last_checkpoint_whole(job: Training) -> None:
    (job.folder / "slow").touch()
    saving = job.folder / "saving"
    try:
        restart, _ = job.training(SIZE)
        until(lambda: saving.exists() and saving.read_text(), job.story)
        kill(int(saving.read_text()))
    finally:
        (job.folder / "slow").unlink()
        saving.unlink(missing_ok=True)
    _, new = job.training(SIZE, after=restart)
    assert new[0][0].loaded == max((step for step in job.saved if step <= new[0][0].loaded), default=0)


def test_a_rank_in_its_save_is_let_finish_when_another_dies(job: Training) -> None:
    saving, slow = job.folder / "saving", job.folder / "slow"
    slow.touch()
    try:
        restart, world = job.training(SIZE)
        until(saving.exists, job.story)
        mark = job.mark()
        kill(pids(world)[1])
        job.event("WorkerExited", mark, "Rank 1")
    finally:
        slow.unlink()
        saving.unlink(missing_ok=True)
    reached = max(step.step for step in job.worlds()[restart][0])
    _, new = job.training(SIZE, after=restart)
    assert new[0][0].loaded == reached


def test_a_member_that_is_killed_is_replaced_with_the_next_id_and_its_rank(job: Training) -> None:
    restart, world = job.training(SIZE)
    mark = job.mark()
    victim = members(world)[1]
    hit = job.signal_tree(victim, signal.SIGKILL)
    job.event("MemberLost", mark, victim)
    _, new = job.training(SIZE, after=restart)
    assert number_of(new[1][0].member) > max(map(number_of, members(world)))
    assert [new[rank][0].member for rank in (0, 2, 3)] == [members(world)[rank] for rank in (0, 2, 3)]
    assert not [pid for pid in hit if is_alive(pid)]
    assert "RestartedSidecar" not in job.told(mark)


def test_a_frozen_member_is_left_out_and_does_not_disturb_when_it_thaws(job: Training) -> None:
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


def test_a_changed_script_is_live_after_outrider_restart(job: Training) -> None:
    restart, _ = job.training(SIZE)
    job.script.write_text(SCRIPT.replace("VERSION = Path(sys.argv[1]), 10, 1", "VERSION = Path(sys.argv[1]), 10, 2"))
    mark = job.mark()
    job.outrider("restart", job.job)
    job.event("RestartAsked", mark)
    _, new = job.training(SIZE, after=restart)
    assert {steps[0].version for steps in new.values()} == {2}
    assert new[0][0].step == new[0][0].loaded + 1


def test_events_are_followed_as_they_happen_and_the_job_ends_well(job: Training) -> None:
    restart, world = job.training(SIZE)
    kill(pids(world)[0])
    job.training(SIZE, after=restart)
    told = job.outrider("events", job.job)
    assert "WorkerExited" in told
    faults = job.status()["faults"]
    assert {"WorkerExited", "TrainerLost", "MemberLost", "MemberSilent"} <= {fault["kind"] for fault in faults}
    job.end_well()
    assert job.status()["exit_code"] == 0


def number_of(member: str) -> int:
    return int(member.rpartition("-")[2])
