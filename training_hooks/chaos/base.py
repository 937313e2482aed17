"""Shared by the fault program and the faults: their files, their locks, and the member's processes."""

import fcntl
import json
import os
import signal
import struct
import sys

from ..process import cgroup

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "main.py")
ARMED = "OUTRIDER_CHAOS"
MARK = "OUTRIDER_FAULT"
"""Environment variable of a fault's processes with the fault's name, so that they are not taken for the trainer's."""
BESIDE = "OUTRIDER_BESIDE"
"""Environment variable of a fault made from outside of its pod: the pid of the process with whose end the pod ends."""
LIMITED = {"cpu", "memory", ""}
"""Controllers whose limits may apply to a fault; "" stands for all of version 2."""
FLOCK = "@hhqqi0q"
"""`struct flock` of 64 bits (linux/fcntl.h): type, whence, start, length, pid."""
UNDONE, OVER, GONE, REFUSED = "undone", "over", "gone", "refused"
"""How a fault ended: on request, after its time, because its container or target ended, or it could never start."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Refused(Exception):
    """The fault cannot be made here; the message has the reason."""


# -- armed ------------------------------------------------------------------------------------------------------------
def arm(environ):
    """Called at the start of every process that may be the first of its container: starts the faults armed for this
    member, once. It never stops training."""
    armed = environ.get(ARMED)
    if not armed:
        return
    try:
        for fault in armed.split(","):
            name = named(fault)
            ended = read(environ["OUTRIDER_DIR"], name).get("ended")
            if ended not in (UNDONE, OVER, REFUSED) and not is_running(environ["OUTRIDER_DIR"], name):
                os.waitpid(detached(fault, environ, -1), 0)
    except (OSError, KeyError):
        pass


def detached(fault, environ, writing):
    """Starts a fault; returns the pid of a child that ends at once, so that the fault has no parent here."""
    session, pid = os.getsid(0), os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            if writing >= 0:
                os.set_inheritable(writing, True)
            words = [sys.executable, "-I", "-S", PROGRAM, "hold", fault, str(writing), str(session)]
            os.execve(sys.executable, words, dict(environ, **{MARK: named(fault)}))
    finally:
        os._exit(0)


# -- what runs --------------------------------------------------------------------------------------------------------
def named(fault):
    return fault.partition(":")[0].partition("=")[0]


def parsed(fault):
    """(name, value, seconds or None)."""
    what, _, lasting = fault.partition(":")
    name, _, value = what.partition("=")
    try:
        return name, value, float(lasting[:-1] if lasting.endswith("s") else lasting) if lasting else None
    except ValueError:
        raise Refused("%r: Invalid value: %r: must be a duration in seconds, such as 60s" % (fault, lasting))


def _path(volume, name):
    return os.path.join(volume, "faults", name)


def read(volume, name):
    """The content of a fault's file, or {} if there is none."""
    try:
        with open(_path(volume, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def is_running(volume, name):
    """Whether a process holds the fault's lock. The holder itself must not call it, since closing the file releases the
    lock. The check takes no lock, because a fault that starts at that moment would fail on it."""
    query = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(_path(volume, name), "r+") as file:
            return struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, query))[0] != fcntl.F_UNLCK
    except FileNotFoundError:
        return False
    except OSError:
        return True


def records(volume):
    """The records of all running faults."""
    return [found for found in (read(volume, name) for name in names(volume) if is_running(volume, name)) if found]


def names(volume):
    try:
        return sorted(os.listdir(os.path.join(volume, "faults")))
    except OSError:
        return []


def of_member(volume, environ, name):
    """The fault of this name that runs, or that is armed and about to start; "" if there is none."""
    record = read(volume, name)
    if record:
        return record["fault"] if is_running(volume, name) else ""
    return next((fault for fault in environ.get(ARMED, "").split(",") if named(fault) == name), "")


def claimed(volume, name):
    """The locked file; it stays open as long as the fault runs."""
    try:
        os.makedirs(os.path.join(volume, "faults"), exist_ok=True)
        file = open(os.open(_path(volume, name), os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    except OSError as error:
        raise Refused("%s cannot be written: %s" % (_path(volume, name), error.strerror))
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Refused("%s runs here already: undo it first" % (read(volume, name).get("fault") or name))
    return file


# -- processes --------------------------------------------------------------------------------------------------------
def environment(pid):
    """The environment with which a process was started, or {} if it is not readable."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if entry)


def started(pid):
    """When a process started, in ticks since the boot; with the pid it identifies the process. None if it has ended."""
    try:
        with open("/proc/%s/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def members(environ):
    """{pid: environment} of the member's living, readable processes except this one, found by the pod's uid that all of
    them inherit, or else by the volume."""
    name = "OUTRIDER_POD_UID" if environ.get("OUTRIDER_POD_UID") else "OUTRIDER_DIR"
    found = {int(pid): environment(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()}
    mine = {pid: each for pid, each in found.items() if each and each.get(name) == environ.get(name)}
    return {pid: each for pid, each in mine.items() if started(pid) is not None}


def processes(environ):
    """The same without faults."""
    return {pid: each for pid, each in members(environ).items() if MARK not in each}


def first_process(environ):
    """(pid, start) of the trainer's first process in this container, with which the container ends."""
    if BESIDE in environ:
        return int(environ[BESIDE]), started(environ[BESIDE])
    found = [(started(pid), pid) for pid, each in processes(environ).items() if "OUTRIDER_HOOKS" in each]
    found = [(at, pid) for at, pid in found if at is not None]
    return min(found)[::-1] if found else None


def charged_with(pid):
    """Moves this process into the cgroup of another one, if it differs and may be entered, so that its limits apply to
    the fault. Returns "", or a clause for the user if it may not be entered."""
    mounts, refused = cgroup.read("/proc/self/mounts"), ""
    for theirs, own in zip(cgroup.rows(pid), cgroup.rows("self")):
        if theirs != own:
            try:
                with open(os.path.join(cgroup.folder(theirs, mounts), "cgroup.procs"), "w") as file:
                    file.write("0")
            except OSError as error:
                if not LIMITED.isdisjoint(theirs.split(":")[1].split(",")):
                    refused = error.strerror
    clause = ", outside of the trainer's cgroup, so its limits do not apply (%s)"
    return clause % refused if refused else ""


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass
