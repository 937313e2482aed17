"""Members that are isolated: each has its own network, pids and cgroup, and nothing of them outlives the command."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from functools import cached_property
from pathlib import Path

import pytest

from outrider.master.local.sandbox.cgroups import hierarchies
from outrider.sidecar.shell.peer_probes import ANSWER, NONCE, QUESTION
from tests.local.chapters import live_through
from tests.local.plain import SCRIPT
from tests.local.training import DEADLINE, Training, members, one_job, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("netns"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may give members networks of their own"),
]
NEEDS_IPTABLES = pytest.mark.skipif(not shutil.which("iptables"), reason="needs iptables")
OOM_KILLS = ("memory.oom_control|memory.events", "oom_kill")
FLAGS = ("--nnodes", "3", "--isolate", "--member-memory", "256Mi")


class Isolated(Training):
    """Its ranks' traces tell the pids that they have in their own namespaces."""

    def groups(self) -> list[Path]:
        """The cgroups of its members."""
        bases = hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
        return [group for base in bases for group in base.glob(f"outrider-job-{self.uid}/worker-*")]

    @cached_property
    def uid(self) -> str:
        environment = Path(f"/proc/{self.tree('worker-0')[0]}/environ").read_text()
        return next(row.partition("=")[2] for row in environment.split("\0") if row.startswith("OUTRIDER_JOB_UID="))

    def check_processes(self, old: set[int], new: set[int]) -> None:
        """A member that is cut off ends its ranks by itself."""
        most = len(members(self.now()[1]))
        until(lambda: self.ranks() <= most, lambda: f"the ranks of an old generation to end\n{self.story()}")

    def ranks(self) -> int:
        found = [pid for member in (self.job_folder / "members").iterdir() for pid in self.tree(member.name)]
        return len([pid for pid in found if re.match(r"rank \d", name_of(pid))])


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:  # it has ended
        return ""


def isolated(folder: Path, *flags: str) -> contextlib.AbstractContextManager[Isolated]:
    return one_job(folder, *FLAGS, *flags, kind=Isolated, job=f"isolated-{os.getpid()}", script=SCRIPT)


def left_of(job: Isolated) -> list[str]:
    """What the kernel shows of the job: its interface and its cgroups."""
    links = subprocess.run(("ip", "-d", "link"), capture_output=True, text=True, check=True).stdout
    return [*re.findall(f"alias (outrider job {job.job})$", links, re.MULTILINE), *map(str, job.groups())]


def members_have_networks_pids_and_cgroups_of_their_own(job: Isolated) -> None:
    _, world = job.training(3)
    spaces = [{os.readlink(f"/proc/{job.tree(member)[-1]}/ns/{kind}") for kind in ("net", "pid", "mnt", "ipc", "uts")}
              for member in members(world)]  # fmt: skip
    assert len(set.union(*spaces)) == 15
    assert {group.name for group in job.groups()} == set(members(world))
    sizes = [(group / "memory.limit_in_bytes", group / "memory.max") for group in job.groups()]
    assert {path.read_text().strip() for pair in sizes for path in pair if path.exists()} == {str(256 << 20)}
    addresses = set(re.findall(r"rendezvous at (\S+):", job.log()))
    assert addresses
    assert "127.0.0.1" not in addresses
    told = {job.member(member)["pids"]["sidecar"] for member in members(world)}
    assert told < set(range(2, 1000)), "pids as the members see them"
    assert left_of(job)


def ranks_are_killed_for_want_of_memory_and_by_hand_and_a_member_by_hand(job: Isolated) -> None:
    restart, _ = job.training(3)
    mark = job.mark()
    job.order(1, "b'x' * (1 << 30)")
    assert job.event("WorkerExited", mark, "ran out of memory")["member"] == "worker-1"
    restart, world = job.training(3, after=restart)
    kill = job.cli("chaos", "kill-process", job.job, "--member", members(world)[1])  # its pid is told once a second
    until(lambda: subprocess.run(kill, env=job.environment, capture_output=True).returncode == 0, "a rank to kill")
    restart, world = job.training(3, after=restart)
    job.outrider("chaos", "kill-member", job.job, "--member", members(world)[2])
    _, new = job.training(3, after=restart)
    assert members(new)[:2] == members(world)[:2]
    assert members(new)[2] != members(world)[2]


def counted(job: Isolated, name: str, word: str) -> dict[str, int]:
    """A number that the members' cgroups count, by member; `name`: the file, of version 1 or 2."""
    files = [group / each for group in job.groups() for each in name.split("|") if (group / each).exists()]
    rows = [(path.parent.name, row.split()) for path in files for row in path.read_text().splitlines()]
    return {member: int(row[1]) for member, row in rows if row[0] == word}


def loaded(job: Isolated) -> set[str]:
    """In whose limit of processor time a load runs that was made on purpose."""
    groups = [group for group in job.groups() if (group / "cpu.stat").exists()]
    pids = [(group.name, pid) for group in groups for pid in (group / "cgroup.procs").read_text().split()]
    return {member for member, pid in pids if b"cpu-load" in command_of(pid)}


def command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def memory_filled_in_one_member_is_its_own_and_costs_a_rank_of_it_alone(job: Isolated) -> None:
    restart, world = job.training(3)
    victim, mark, needs = members(world)[1], job.mark(), "b'x' * (130 << 20)"  # more than files in memory give way for
    before = counted(job, *OOM_KILLS)
    job.order(1, needs)
    until(lambda: not (job.folder / "order-1").exists(), "130 MiB, which a member without a fault has")
    job.outrider("chaos", "fill-memory", "90", job.job, "--member", victim)
    job.order(1, needs)
    assert job.event("WorkerExited", mark, "ran out of memory")["member"] == victim
    job.training(3, after=restart)
    kills = {member: count - before.get(member, 0) for member, count in counted(job, *OOM_KILLS).items()}
    assert kills.pop(victim) >= 1
    assert set(kills.values()) == {0}


def round_trip(job: Isolated, member: str) -> float:
    """Seconds until the member's sidecar has answered a question."""
    hosts = (job.job_folder / "hosts").read_text().splitlines()
    address = next(line.split()[0] for line in hosts if line.endswith(f" {member}"))
    port = int((job.job_folder / "members" / member / "probe-port").read_text())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(DEADLINE)
        began = time.monotonic()
        asking.sendto(QUESTION + bytes(NONCE), (address, port))
        assert asking.recv(100) == ANSWER + bytes(NONCE)
        return time.monotonic() - began


def a_member_that_is_cut_off_is_replaced(job: Isolated) -> None:
    needs_iptables()
    restart, world = job.training(3)
    victim = members(world)[1]
    assert "every packet" in job.outrider("chaos", "cut-network", job.job, "--member", victim)
    _, new = job.training(3, after=restart)
    assert [members(new)[0], members(new)[2]] == [members(world)[0], members(world)[2]], "the others trained on"
    assert members(new)[1] != victim


def the_network_of_one_member_is_slow_until_that_is_undone(job: Isolated) -> None:
    needs_iptables()
    _, world = job.training(3)
    slow = members(world)[1]
    told = job.outrider("chaos", "slow-network", "300", job.job, "--member", slow, "--for", "600s")
    assert "300 ms more" in told
    assert min(round_trip(job, slow) for _ in range(3)) >= 0.3
    assert "slow-network=300:600s undone" in job.outrider("chaos", "undo", job.job, "--member", slow)
    until(lambda: round_trip(job, slow) < 0.3, "packets to pass as before")


def it_ends_well_and_leaves_nothing(job: Isolated) -> None:
    job.end_well()
    assert left_of(job) == []


def needs_iptables() -> None:
    if not shutil.which("iptables"):
        pytest.skip("needs iptables")


def test_a_job_of_isolated_members_lives_through_faults_of_each(tmp_path: Path, subtests: pytest.Subtests) -> None:
    with isolated(tmp_path) as job:
        live_through(
            subtests,
            job,
            members_have_networks_pids_and_cgroups_of_their_own,
            ranks_are_killed_for_want_of_memory_and_by_hand_and_a_member_by_hand,
            the_network_of_one_member_is_slow_until_that_is_undone,
            a_member_that_is_cut_off_is_replaced,
            memory_filled_in_one_member_is_its_own_and_costs_a_rank_of_it_alone,
            it_ends_well_and_leaves_nothing,
        )


def test_a_load_made_in_one_member_is_held_by_its_limit_and_is_in_no_other_group(tmp_path: Path) -> None:
    """A limit so small that a load reaches it beside others of a busy machine too. What has no processor has no time to
    run out of memory either, so the story above is without."""
    with isolated(tmp_path, "--nnodes", "2", "--member-cpus", "0.1") as job:
        _, world = job.training(2)
        victim = members(world)[1]
        before = counted(job, "cpu.stat", "nr_throttled")[victim]
        job.outrider("chaos", "cpu-load", "100", job.job, "--member", victim)
        until(lambda: counted(job, "cpu.stat", "nr_throttled")[victim] > before + 10, "the load to be held back")
        assert loaded(job) == {victim}, "members whose processors the load takes"
        assert "cpu-load=100 undone" in job.outrider("chaos", "undo", job.job)
        job.end_well()


PATIENT = ("--silent-after", "60")
"""So a minute passes between the member's replacement and the end of its pod: what comes back comes in between."""


@pytest.mark.exhaustive
@NEEDS_IPTABLES
def test_a_member_that_was_cut_off_comes_back_when_that_is_undone(tmp_path: Path) -> None:
    with isolated(tmp_path, *PATIENT) as job:
        restart, world = job.training(3)
        victim, mark = members(world)[1], job.mark()
        job.outrider("chaos", "cut-network", job.job, "--member", victim)
        job.training(3, after=restart)
        assert "cut-network undone" in job.outrider("chaos", "undo", job.job, "--member", victim)
        job.event("MemberReturned", mark, victim)
        job.end_well()


@pytest.mark.exhaustive
def test_nothing_outlives_a_killed_command(tmp_path: Path) -> None:
    with isolated(tmp_path) as job:
        job.training(3)
        assert left_of(job)
        job.process.kill()
        job.process.wait(DEADLINE)
        until(lambda: not left_of(job), lambda: f"{left_of(job)} to go")
        until(lambda: not job.left(), lambda: f"{job.left()} to end")


ARMED = ("--chaos", "cut-network@rank-index=1", "--chaos", "slow-network=300@rank-index=2", *PATIENT)


@pytest.mark.exhaustive
@NEEDS_IPTABLES
def test_what_is_armed_breaks_the_network_of_its_member_and_not_that_of_its_replacement(tmp_path: Path) -> None:
    with isolated(tmp_path, *ARMED) as job:
        mark = job.mark()
        job.event("SparePromoted", mark, "worker-3 takes rank index 1")
        listed = job.outrider("chaos", "list", job.job)
        assert "worker-1: cut-network: every packet from and to it is dropped" in listed
        assert "worker-2: slow-network=300: every round trip" in listed
        assert "cut-network undone" in job.outrider("chaos", "undo", job.job, "--member", "worker-1")
        job.event("MemberReturned", mark, "worker-1")
        _, world = job.training(3)
        assert members(world)[0] == "worker-0"
        assert members(world)[1] not in ("worker-0", "worker-1")
        assert min(round_trip(job, "worker-2") for _ in range(3)) >= 0.3
        job.end_well()
