"""`outrider run --isolate`: gives each member of a local job its own machine, as far as the kernel can.

A member runs in a *sandbox*, built like a pod's: namespaces for network, pids, mounts, IPC and host name, held by one
idle process that is pid 1 there, and a cgroup for its trainer. A *hub* connects the sandboxes of a job: a network
namespace with a bridge, and one veth pair to this machine, where the master runs.

Nothing needs to be cleaned up: no namespace has a name, so each disappears with its last process, and with it all its
interfaces and rules. The kernel kills pid 1 of a sandbox together with the command, which ends all of the sandbox. The
hub's keeper reads from a pipe that closes when the command ends, for whatever reason, and then removes the cgroups
before it ends too.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

from outrider.master.local.sandbox.cgroups import JobGroups, Limits
from outrider.master.local.sandbox.namespaces import PATIENCE, TOOL_PATH, Entrance, IsolationError, NewPids, furnished
from outrider.master.local.spawning import Child

TOOLS = {"ip": "iproute2", "mount": "util-linux", "unshare": "util-linux", "nsenter": "util-linux"}
POOL, PREFIX = IPv4Network("198.18.0.0/15"), 21
"""Addresses that RFC 2544 reserves for tests of isolated networks: 2,046 for each of at most 64 concurrent jobs."""
POLL = 0.01

KEEP = """
remove_groups() {
    for group in $GROUPS_OF_JOB; do
        echo $$ >"$group/../cgroup.procs"
        tries=0
        until find "$group" -depth -type d -exec rmdir {} + || [ $tries -ge 100 ]; do
            tries=$((tries + 1)); sleep 0.05
        done
    done
}
trap 'set +e; remove_groups 2>/dev/null' EXIT
for group in $GROUPS_OF_JOB; do echo $$ >"$group/keeper/cgroup.procs"; done
ip link add hub type bridge
ip link add uplink type veth peer name "$LINK" netns "$OUTSIDE"
ip link set uplink master hub up
ip link set hub up
nsenter --net="$OUTSIDE" ip link set "$LINK" alias "$ALIAS"
nsenter --net="$OUTSIDE" ip address add "$ADDRESS" dev "$LINK"
nsenter --net="$OUTSIDE" ip link set "$LINK" up
echo ready
exec >/dev/null 2>&1
read -r _ || true
"""
"""Script of the hub's keeper. It ends with its input; by then the members' remaining processes are being killed."""
FURNISH = """
mount --make-rslave /
echo "$MEMBER" >/proc/sys/kernel/hostname
ip link add eth0 address "$MAC" type veth peer name "$PORT" netns "$HUB"
nsenter --net="$HUB" ip link set "$PORT" master hub up
ip address add "$ADDRESS" dev eth0
ip link set lo up
ip link set eth0 up
mount --bind "$HOSTS" /etc/hosts
mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs /dev/shm
mount -t proc -o nosuid,nodev,noexec proc /proc
echo ready
trap '' CHLD
exec sleep infinity </dev/null >/dev/null 2>&1
"""
"""Script of a sandbox's pid 1. /proc is mounted last: the old one shows the hub, which the script needs. Orphans in the
sandbox become children of its pid 1, which ignores their ends, so that the kernel reaps them. /dev/shm is private
because shared memory is often named after a pid."""


class Hub:
    """Connects the sandboxes of one job. Raises IsolationError if this machine or user cannot create them."""

    def __init__(self, job: str, job_uid: str, limits: Limits, hosts: Path) -> None:
        """`hosts`: path of the file that becomes the members' /etc/hosts."""
        check_tools()
        self.job_uid, self.hosts = job_uid, hosts
        self._members: dict[int, str] = {}
        reading, self._lifeline = os.pipe()
        try:
            with _alone():
                self.groups = JobGroups(job_uid, limits)
                self.link, self.subnet = _free_subnet()
                self._keeper = self._start_keeper(job, reading)
        except OSError as error:
            os.close(self._lifeline)
            raise IsolationError(f"members cannot be isolated on this machine: {error}") from error
        finally:
            os.close(reading)
        self.pid = self._keeper.pid
        self.namespace = f"/proc/{self.pid}/ns/net"

    @property
    def address(self) -> str:
        """Address of this machine in the members' network."""
        return str(self.subnet[1])

    def sandbox(self, member: str) -> Sandbox:
        """Creates a sandbox. Raises OSError if that fails."""
        numbers = range(2, self.subnet.num_addresses - 1)
        number = next(each for each in numbers if each not in self._members)
        self._members[number] = member
        self._write_hosts()
        try:
            return Sandbox(self, member, number)
        except BaseException:
            self.give_back(number)
            raise

    def give_back(self, number: int) -> None:
        """Frees the number of a sandbox that is gone."""
        self.groups.remove(self._members.pop(number))
        self._write_hosts()

    async def close(self) -> None:
        """Ends the hub after the last sandbox, and waits until its interface is gone."""
        os.close(self._lifeline)
        await ended(self._keeper)
        deadline = time.monotonic() + PATIENCE
        while (Path("/sys/class/net") / self.link).exists() and time.monotonic() < deadline:
            await asyncio.sleep(POLL)

    def _start_keeper(self, job: str, reading: int) -> Child:
        variables = {
            "LINK": self.link,
            "ALIAS": f"outrider job {job}",
            "ADDRESS": f"{self.address}/{PREFIX}",
            "OUTSIDE": f"/proc/{os.getpid()}/ns/net",
            "GROUPS_OF_JOB": " ".join(map(str, self.groups.folders)),
        }
        return furnished(("--net",), KEEP, variables, parent_death_signal=signal.SIGCONT, stdin=reading)

    def _write_hosts(self) -> None:
        """Writes the names of all members, as a job's headless Service provides them.

        The file is written in place, as it is mounted. It has IPv6 forms too, as torch resolves IPv4 addresses by them.
        """
        known = [(self.subnet[number], member) for number, member in self._members.items()]
        rows = [f"{form}{address} {member}" for address, member in known for form in ("", "::ffff:")]
        self.hosts.write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *rows, ""]))


class Sandbox:
    """The sandbox of one member, from its construction to `close`."""

    def __init__(self, hub: Hub, member: str, number: int) -> None:
        self._hub, self._number = hub, number
        self.address = str(hub.subnet[number])
        groups = hub.groups.make(member)
        variables = {
            "MEMBER": member,
            "MAC": "02:00:" + ":".join(f"{byte:02x}" for byte in hub.subnet[number].packed),
            "PORT": f"member{number}",
            "HUB": hub.namespace,
            "ADDRESS": f"{self.address}/{PREFIX}",
            "HOSTS": str(hub.hosts),
            "OUTRIDER_JOB_UID": hub.job_uid,
        }
        flags = ("--net", "--mount", "--ipc", "--uts")
        self._holder = furnished(flags, FURNISH, variables, parent_death_signal=signal.SIGKILL, place=NewPids())
        self.pid = self._holder.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._groups = tuple(os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for group in groups)

    @property
    def entrance(self) -> Entrance:
        """Entrance for the sidecar, to which no limit applies."""
        return Entrance(self._pidfd)

    @property
    def trainers_entrance(self) -> Entrance:
        return Entrance(self._pidfd, self._groups)

    async def close(self) -> None:
        """Kills all processes in the sandbox; further calls have no effect."""
        if self._pidfd < 0:
            return
        for descriptor in (self._pidfd, *self._groups):
            os.close(descriptor)
        self._pidfd = -1
        self._holder.send(signal.SIGKILL)
        await ended(self._holder)
        self._hub.give_back(self._number)


def check_tools() -> None:
    """Raises IsolationError if this is not root, or a tool is missing."""
    if os.geteuid() != 0:
        raise IsolationError("only root can isolate members (own network, pids and cgroup)")
    missing = [f"{tool} (of {package})" for tool, package in TOOLS.items() if not shutil.which(tool, path=TOOL_PATH)]
    if missing:
        raise IsolationError(f"isolating members requires {', '.join(missing)}")


async def ended(child: Child) -> None:
    """Waits until the child has ended; kills it after `PATIENCE` seconds."""
    deadline = time.monotonic() + PATIENCE
    while child.code is None:
        if time.monotonic() > deadline:
            child.send(signal.SIGKILL)
        await asyncio.sleep(POLL)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lets one job of a machine at a time search for and take a free subnet; the lock is on the network namespace."""
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _free_subnet() -> tuple[str, IPv4Network]:
    """A free interface name, and its subnet."""
    done = subprocess.run(
        ("ip", "-j", "-4", "route", "show", "table", "all"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={"PATH": TOOL_PATH},
    )
    if done.returncode != 0:
        raise IsolationError(f"ip route: {done.stderr.strip()}")
    taken = [IPv4Network(route["dst"]) for route in json.loads(done.stdout or "[]") if route["dst"] != "default"]
    for number, subnet in enumerate(POOL.subnets(new_prefix=PREFIX)):
        if not any(subnet.overlaps(other) for other in taken):
            return f"outrider{number}", subnet
    raise IsolationError(f"no subnet of {POOL} is free: each already has a route")
