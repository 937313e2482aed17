"""Checks of this machine: Outrider's own environment, ports, names, memory, disks, limits, rights, and leftovers."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import outrider
from outrider.cli import job_dirs
from outrider.cli.doctor.findings import Finding, ok, problem, warning
from outrider.cli.run.size_flags import MORE_ISOLATED, OPEN_FILES, OPEN_FILES_A_MEMBER
from outrider.cli.text import plural
from outrider.runtime.ports import NoFreePort, find_port

GIB, MIB = 1 << 30, 1 << 20
LITTLE_SHM, LITTLE_DISK = 128 * MIB, GIB
SLOW_NAME_SECONDS = 1.0
PROCESSES_A_MEMBER = 16
"""Processes and threads of a member, roughly: sidecar, template, a rank with its threads."""
REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")
CHECKPOINT = re.compile(r"\.(pt|pth|ckpt|bin|safetensors|pkl|distcp)$")
SMI = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
SMI_SECONDS = 20.0


def size(amount: float) -> str:
    """Bytes as `1.5 GiB` or `64 MiB`."""
    return f"{amount / GIB:,.1f} GiB" if amount >= GIB else f"{amount / MIB:,.0f} MiB"


def installation() -> Iterator[Finding]:
    """Outrider's Python, its packages and its version."""
    where = Path(outrider.__file__).resolve().parent
    yield ok("outrider", f"{outrider.__version__} in {where}, on Python {platform.python_version()} ({sys.executable})")
    try:
        required = metadata.requires("outrider") or []
    except metadata.PackageNotFoundError:
        yield warning("packages", "Outrider is not installed as a package, so its requirements are unknown",
                      "install it: pip install .")  # fmt: skip
        return
    needed = [found.group() for each in required if "extra ==" not in each and (found := REQUIREMENT.match(each))]
    missing = [name for name in needed if not _is_installed(name)]
    if missing:
        yield problem("packages", f"not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def kernel() -> Iterator[Finding]:
    """Linux, and the calls and files of it that supervision needs."""
    if sys.platform != "linux":
        yield problem("kernel", f"{sys.platform}: members can be supervised only on Linux", "use a Linux machine")
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        yield problem("kernel", f"Linux {platform.release()}: pidfd_open is not possible ({error.strerror})",
                      "use Linux 5.3 or newer, without a seccomp profile that forbids pidfd_open")  # fmt: skip
        return
    for path in ("/proc/locks", "/proc/self/environ", "/proc/self/task"):
        if not os.access(path, os.R_OK):
            yield problem("kernel", f"{path} cannot be read, so running jobs and processes cannot be found",
                          "mount /proc without restrictions for this user")  # fmt: skip
            return
    yield ok("kernel", f"Linux {platform.release()}; /proc can be read; no ptrace is needed")


def home() -> Iterator[Finding]:
    """The folder of the jobs."""
    folder = job_dirs.home()
    free = shutil.disk_usage(_nearest(folder)).free
    if free < 64 * MIB:
        yield problem("jobs", f"{folder}: {size(free)} free", "free some room, or set OUTRIDER_HOME to another folder")
    else:
        yield ok("jobs", f"in {folder}, {size(free)} free; running: {', '.join(job_dirs.running_jobs()) or 'none'}")


def _nearest(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def loopback() -> Iterator[Finding]:
    """A port is free, and a connection over the loopback interface works."""
    try:
        port = find_port()
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port), timeout=5):
            yield ok("ports", f"127.0.0.1 works (tried port {port})")
    except NoFreePort as none:
        yield problem("ports", str(none), "end programs that hold many ports (ss -ltnp)")
    except OSError as error:
        yield problem("ports", f"127.0.0.1 cannot be reached ({error}): members and master meet there",
                      "bring the loopback interface up (ip link set lo up), and let no firewall block it")  # fmt: skip


def host_name() -> Iterator[Finding]:
    """The machine's own name resolves to an address that it has: gloo asks for it in each rank."""
    name, began = socket.gethostname(), time.monotonic()
    fix = f"write {name} into /etc/hosts, or export GLOO_SOCKET_IFNAME=lo"
    try:
        addresses = sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError as error:
        yield warning("host name", f"{name} does not resolve ({error}): gloo falls back to the loopback address", fix)
        return
    took = time.monotonic() - began
    if took > SLOW_NAME_SECONDS:
        yield warning("host name", f"{name} took {took:.1f} s to resolve, in each rank again", fix)
    elif not any(map(_is_ours, addresses)):
        text = (
            f"{name} resolves to {', '.join(addresses)}, which this machine does not have: gloo falls back to loopback"
        )
        yield warning("host name", text, fix)
    else:
        yield ok("host name", f"{name} is {', '.join(addresses)}")


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family) as probe:
        probe.bind((address.partition("%")[0], 0))
        return True
    return False


def shared_memory() -> Iterator[Finding]:
    """/dev/shm, through which DataLoader workers and NCCL pass data."""
    fix = "in a container: --shm-size=8g, or a memory emptyDir at /dev/shm"
    try:
        with tempfile.TemporaryFile(dir="/dev/shm"):
            usage = shutil.disk_usage("/dev/shm")
    except OSError as error:
        yield problem("/dev/shm", f"cannot be written ({error.strerror})", fix)
        return
    if usage.free < LITTLE_SHM:
        text = f"{size(usage.free)} of {size(usage.total)} free: DataLoader workers and NCCL may fail with a bus error"
        yield warning("/dev/shm", text, fix)
    else:
        yield ok("/dev/shm", f"{size(usage.free)} free")


def checkpoints(folder: Path) -> Iterator[Finding]:
    """Room and rights in the folder of the checkpoints, and whether a file can be replaced there in one step."""
    shown = folder.absolute()
    fix = "free some room, or save to another disk (--checkpoints DIR checks another folder)"
    try:
        with tempfile.TemporaryDirectory(prefix=".outrider-doctor-", dir=_nearest(folder)) as place:
            old, new = Path(place, "old"), Path(place, "new")
            old.write_bytes(b"old")
            new.write_bytes(b"new")
            os.replace(new, old)
        free = shutil.disk_usage(_nearest(folder)).free
    except OSError as error:
        yield problem("checkpoints", f"{shown} cannot be written ({error.strerror})",
                      "give this user the right to write there, or save elsewhere")  # fmt: skip
        return
    largest = _largest(folder)
    if free < largest:
        text = (
            f"{shown}: {size(free)} free, but the largest checkpoint has {size(largest)}: a save beside it has no room"
        )
        yield warning("checkpoints", text, fix)
    elif free < LITTLE_DISK:
        yield warning("checkpoints", f"{shown}: {size(free)} free", fix)
    else:
        yield ok("checkpoints", f"{shown}: {size(free)} free")


def _largest(folder: Path) -> int:
    """Bytes of the largest checkpoint in the folder itself; 0 if there is none."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return max(
            (each.stat().st_size for each in entries if CHECKPOINT.search(each.name) and each.is_file()), default=0
        )
    return 0


def limits(members: int, isolated: bool) -> Iterator[Finding]:
    """Open files, processes and inotify instances for so many members."""
    each = OPEN_FILES_A_MEMBER + (MORE_ISOLATED if isolated else 0)
    of = f"for {plural(members, 'member')}"
    files, processes = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    if 0 <= files < OPEN_FILES + each * members:
        yield problem(
            "limits", f"ulimit -n is {files}, {of} {OPEN_FILES + each * members} are needed", "ulimit -n 65536"
        )
        return
    if 0 <= processes < PROCESSES_A_MEMBER * members and os.geteuid() != 0:
        yield warning("limits", f"ulimit -u is {processes}, which may be too few {of}", "raise it: ulimit -u")
        return
    instances = _number("/proc/sys/fs/inotify/max_user_instances")
    if instances is not None and instances < members:
        text = f"{plural(instances, 'inotify instance')} a user, {of}: some reads of checkpoints will not be noticed"
        yield warning("limits", text, f"sysctl fs.inotify.max_user_instances={max(1024, 2 * members)}")
        return
    yield ok("limits", f"enough open files, processes and inotify instances {of}")


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def isolation() -> Iterator[Finding]:
    """What `--isolate` needs: root, tools, namespaces and cgroups, each tried."""
    from outrider.master.local.sandbox.cgroups import hierarchies
    from outrider.master.local.sandbox.isolation import check_tools
    from outrider.master.local.sandbox.namespaces import IsolationError

    try:
        check_tools()
    except IsolationError as impossible:
        yield problem("isolation", str(impossible), "run as root with these tools, or leave --isolate out")
        return
    tried = subprocess.run(["unshare", "--net", "--pid", "--mount", "--ipc", "--uts", "--fork", "true"],
                           capture_output=True, text=True, timeout=30)  # fmt: skip
    if tried.returncode:
        yield problem("isolation", f"namespaces are not possible: {tried.stderr.strip()}",
                      "in a container: it needs --privileged, or at least CAP_SYS_ADMIN and CAP_NET_ADMIN")  # fmt: skip
        return
    groups = hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    for group in groups:
        try:
            os.rmdir(tempfile.mkdtemp(prefix="outrider-doctor-", dir=group))
        except OSError as error:
            yield problem("isolation", f"groups cannot be made in {group} ({error.strerror})",
                          "mount the cgroups writable")  # fmt: skip
            return
    if not groups:
        yield problem("isolation", "there is no cgroup file system", "mount cgroup2 at /sys/fs/cgroup")
        return
    yield ok("isolation", "namespaces and cgroups can be made")


def leftovers() -> Iterator[Finding]:
    """Processes of jobs whose command has ended, and processes that hold GPUs."""
    found = list(_of_ended_jobs())
    for pid, job in found:
        yield warning(
            "leftovers", f"process {pid} ({_name(pid)}) is of the job {job}, which is not running", f"kill {pid}"
        )
    holders = list(_gpu_holders())
    for pid, used in holders:
        yield warning(
            "GPUs", f"process {pid} ({_name(pid)}) holds {used} of GPU memory", f"if it is not needed: kill {pid}"
        )
    if not found and not holders:
        yield ok("leftovers", "no process of an ended job, none on a GPU")


def _of_ended_jobs() -> Iterator[tuple[int, str]]:
    """Processes with the mark of a job of this user's folder that does not run any more."""
    running = set(job_dirs.running_jobs())
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        marks = dict(each.partition(b"=")[::2] for each in environment if each.startswith(b"OUTRIDER_"))
        if b"OUTRIDER_JOB_UID" not in marks:
            continue
        folder = Path(os.fsdecode(marks.get(b"OUTRIDER_DIR") or marks.get(b"OUTRIDER_JOB_DIR") or b"/"))
        jobs = job_dirs.home() / "jobs"
        if folder.is_relative_to(jobs) and folder != jobs and (job := folder.relative_to(jobs).parts[0]) not in running:
            yield int(entry.name), job


def _gpu_holders() -> Iterator[tuple[int, str]]:
    try:
        listed = subprocess.run(SMI, capture_output=True, text=True, timeout=SMI_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):  # no NVIDIA GPU here, or its driver does not answer
        return
    for row in listed.splitlines():
        pid, _, used = row.partition(",")
        if pid.strip().isdigit():
            yield int(pid), used.strip()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:60]
    except OSError:
        return "not visible to this user"
