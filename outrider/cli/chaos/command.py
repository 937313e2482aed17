"""`outrider chaos ...`: injects faults into a running job, to test that it recovers.

Nothing here talks to the parts that recover: a process is killed or stopped as the kernel, a debugger or a failing
machine would do it. `chaos.members` finds processes of a local job, `chaos.pod` those in a pod of a cluster.
"""

from __future__ import annotations

import signal

import click

from outrider.cli import job_dirs
from outrider.cli.chaos import local as chaos_local
from outrider.cli.chaos import members
from outrider.cli.chaos.pod import or_pod
from outrider.cli.client import Master
from outrider.cli.errors import UserError
from outrider.cli.flags import Flag, parsing
from outrider.master.core.k8s.values.chaos import KINDS, Fault, lasting, parsed
from outrider.runtime.processes import send_signal


@click.group()
def chaos() -> None:
    """Inject a fault into a running job: kill, freeze or overload a part of it."""


def _signal(value: str) -> signal.Signals:
    name = value.upper().removeprefix("SIG")
    try:
        return signal.Signals(int(name)) if name.isdigit() else signal.Signals[f"SIG{name}"]
    except (KeyError, ValueError):
        raise ValueError("must be the name of a signal (KILL, SEGV, ABRT, TERM) or its number") from None


member_option = click.option(
    "--member", metavar="ID", help="Member, such as worker-1. Default: the last one that trains."
)
signal_option = click.option(
    "--signal", "number", cls=Flag, default="KILL", metavar="SIGNAL", callback=parsing(_signal),
    help="Send this signal. Default: KILL.",
)  # fmt: skip


@chaos.command("kill-process")
@click.argument("job", required=False)
@member_option
@signal_option
@or_pod(lambda pod, number: pod.send("process", number))
def kill_process(job: str | None, member: str | None, number: signal.Signals) -> None:
    """Kill one worker process of a member."""
    members.kill_one(job, member, number, "worker process", lambda pids: (pids.get("workers") or [0])[-1])


@chaos.command("kill-launcher")
@click.argument("job", required=False)
@member_option
@signal_option
@or_pod(lambda pod, number: pod.send("launcher", number))
def kill_launcher(job: str | None, member: str | None, number: signal.Signals) -> None:
    """Kill a member's template or launcher."""
    members.kill_one(job, member, number, "template or launcher", lambda pids: pids.get("trainer") or 0)


@chaos.command("kill-sidecar")
@click.argument("job", required=False)
@member_option
@signal_option
@or_pod(lambda pod, number: pod.send("sidecar", number))
def kill_sidecar(job: str | None, member: str | None, number: signal.Signals) -> None:
    """Kill a member's sidecar. The training should not be affected."""
    members.kill_one(job, member, number, "sidecar", lambda pids: pids.get("sidecar") or 0)


@chaos.command("kill-master")
@click.argument("job", required=False)
@signal_option
def kill_master(job: str | None, number: signal.Signals) -> None:
    """Kill the job's master. The training should not be affected."""
    name = members.running(job)
    folder = job_dirs.job_folder(name)
    pid = Master(folder).pid()
    if not send_signal(pid, number, "OUTRIDER_JOB_DIR", str(folder)):
        raise UserError(f"process {pid}, which answers for {name}, is not the master of this job")
    click.echo(f"sent {number.name} to the master of {name} (pid {pid})")


@chaos.command("kill-member")
@click.argument("job", required=False)
@member_option
@signal_option
@or_pod(lambda pod, number: pod.kill(number))
def kill_member(job: str | None, member: str | None, number: signal.Signals) -> None:
    """Kill all processes of a member, including its sidecar."""
    members.whole_member(job, member, number)


for_option = click.option(
    "--for",
    "seconds",
    cls=Flag,
    metavar="DURATION",
    callback=parsing(lasting),
    help="Undo it after DURATION, such as 60s or 5m.",
)


@chaos.command("cpu-load")
@click.argument("percent")
@click.argument("job", required=False)
@member_option
@for_option
@or_pod(lambda pod, percent, seconds: pod.start(_fault(f"cpu-load={percent}", seconds)))
def cpu_load(percent: str, job: str | None, member: str | None, seconds: float | None) -> None:
    """Keep the CPUs of a member busy for PERCENT of the time."""
    _burden(f"cpu-load={percent}", job, member, seconds)


@chaos.command("fill-memory")
@click.argument("percent")
@click.argument("job", required=False)
@member_option
@for_option
@or_pod(lambda pod, percent, seconds: pod.start(_fault(f"fill-memory={percent}", seconds)))
def fill_memory(percent: str, job: str | None, member: str | None, seconds: float | None) -> None:
    """Fill the memory that a member may use to PERCENT."""
    _burden(f"fill-memory={percent}", job, member, seconds)


@chaos.command("bad-node")
@click.argument("job", required=False)
@member_option
@for_option
@click.option("--slow", is_flag=True, help="Let the probe take five times as long, instead of dying.")
@or_pod(lambda pod, seconds, slow: pod.start(_fault("bad-node=slow" if slow else "bad-node", seconds)))
def bad_node(job: str | None, member: str | None, seconds: float | None, slow: bool) -> None:
    """Let the probe of a member die in the next node check."""
    _burden("bad-node=slow" if slow else "bad-node", job, member, seconds)


image_option = click.option(
    "--image",
    metavar="IMAGE",
    help="Image of the privileged pod for --pod. Default: that of the installed Outrider.",
)


@chaos.command("slow-network")
@click.argument("milliseconds", metavar="MS")
@click.argument("job", required=False)
@member_option
@for_option
@image_option
@or_pod(
    lambda pod, milliseconds, seconds, image: pod.network.start(_fault(f"slow-network={milliseconds}", seconds), image)
)
def slow_network(
    milliseconds: str, job: str | None, member: str | None, seconds: float | None, image: str | None
) -> None:
    """Delay round trips of an isolated member or pod by MS ms."""
    _burden(f"slow-network={milliseconds}", job, member, seconds)


@chaos.command("cut-network")
@click.argument("job", required=False)
@member_option
@for_option
@image_option
@or_pod(lambda pod, seconds, image: pod.network.start(_fault("cut-network", seconds), image))
def cut_network(job: str | None, member: str | None, seconds: float | None, image: str | None) -> None:
    """Drop every packet from and to an isolated member, or a pod."""
    _burden("cut-network", job, member, seconds)


@chaos.command("undo")
@click.argument("job", required=False)
@click.option("--member", metavar="ID", help="Undo faults of this member, as worker-1. Default: of all.")
@click.option("--fault", cls=Flag, type=click.Choice(sorted(KINDS)), metavar="NAME",
              help="Undo this fault, as cpu-load. Default: all.")  # fmt: skip
@or_pod(lambda pod, fault: pod.undo(fault))
def undo(job: str | None, member: str | None, fault: str | None) -> None:
    """Undo faults that are still active."""
    name = members.running(job)
    found = {
        each: chaos_local.undo(name, members.volume(name, each), fault) for each in members.with_processes(name, member)
    }
    for each, undone in found.items():
        for what in undone:
            click.echo(f"{each} of {name}: {what} undone")
    if not any(found.values()):
        click.echo(f"no active fault in {member or name}")


@chaos.command("list")
@click.argument("job", required=False)
@or_pod(lambda pod: pod.listed())
def list_(job: str | None) -> None:
    """Show active faults, and armed faults that were refused."""
    name = members.running(job)
    found = {each: chaos_local.listed(name, members.volume(name, each)) for each in members.with_processes(name, None)}
    lines = [
        f"{each}: {one['fault']}: {one.get('about', '')}" for each, faults in found.items() for one in faults["running"]
    ]
    lines += [
        f"{each}: {one['fault']}: refused: {one['why']}" for each, faults in found.items() for one in faults["refused"]
    ]
    click.echo("\n".join(lines) or f"no active fault in {name}")


@chaos.command("freeze-member")
@click.argument("job", required=False)
@member_option
@for_option
@or_pod(lambda pod, seconds: pod.freeze(seconds))
def freeze_member(job: str | None, member: str | None, seconds: float | None) -> None:
    """Stop all processes of a member (SIGSTOP). It falls silent and keeps its connections open."""
    if seconds is None:
        members.whole_member(job, member, signal.SIGSTOP)
    else:
        _burden("freeze-member", job, member, seconds)


@chaos.command("hang")
@click.argument("job", required=False)
@member_option
@for_option
@or_pod(lambda pod, seconds: pod.hang(_fault("hang", seconds)))
def hang(job: str | None, member: str | None, seconds: float | None) -> None:
    """Stop one worker process of a member (SIGSTOP). The member still reports, but no rank makes another step."""
    if seconds is not None:
        _burden("hang", job, member, seconds)
        return
    members.kill_one(job, member, signal.SIGSTOP, "worker process", lambda pids: (pids.get("workers") or [0])[-1])


@chaos.command("thaw-member")
@click.argument("job", required=False)
@click.option("--member", metavar="ID", help="The frozen member, such as worker-1.")
@or_pod(lambda pod: pod.send_all(signal.SIGCONT))
def thaw_member(job: str | None, member: str | None) -> None:
    """Let a frozen member continue (SIGCONT)."""
    if member is None:
        raise UserError("--member ID (of a local job) or --pod NAME (of a cluster): must be given to thaw a member")
    members.signal_all(members.running(job), member, signal.SIGCONT)


def _burden(fault: str, job: str | None, member: str | None, seconds: float | None) -> None:
    """Inject a fault that lasts into the given member, else into the last one that trains."""
    requested = _fault(fault, seconds)
    name = members.running(job)
    target, _ = members.with_process(name, member, "template or launcher", lambda pids: pids.get("trainer") or 0)
    chaos_local.make(name, members.volume(name, target), requested)


def _fault(fault: str, seconds: float | None) -> Fault:
    try:
        requested = parsed(fault)
    except ValueError as wrong:
        raise UserError(str(wrong)) from None
    return Fault(requested.name, requested.value, seconds)
