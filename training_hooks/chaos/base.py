"""What the program of faults and the faults themselves share: their files, their locks, and the member's processes."""

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
"""In the environment of a fault's processes: its name. No orphan's end is theirs."""
BESIDE = "OUTRIDER_BESIDE"
"""In the environment of a fault that is made from outside of its pod: the pid of the process whose end is the pod's."""
LIMITED = {"cpu", "memory", ""}
"""Controllers whose limits a fault may meet; "" stands for all of version 2."""
FLOCK = "@hhqqi0q"
"""`struct flock` of 64 bits (linux/fcntl.h): type, whence, start, length, pid."""
UNDONE, OVER, GONE, REFUSED = "undone", "over", "gone", "refused"
"""How a fault has ended: somebody said so, its time was over, what it was made in or for has ended, or never began."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Refused(Exception):
    """The fault cannot be made here; one sentence."""


# -- armed ------------------------------------------------------------------------------------------------------------
def arm(environ):
    """Called at the start of every process that may be the first of its container: what is armed for this member begins
    now, once. Never in the way of the training."""
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
    """The pid of a child that ends at once; what it has started belongs to nobody here."""
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
        raise Refused("%r: %r is no duration; write seconds, as 60s" % (fault, lasting))


def _path(volume, name):
    return os.path.join(volume, "faults", name)


def read(volume, name):
    """What a fault's file says; {} where there was none."""
    try:
        with open(_path(volume, name)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def is_running(volume, name):
    """Whether somebody holds its lock. Must not be called by the holder: to close the file is to lose the lock. To look
    takes no lock, which a fault that begins just then would meet."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(_path(volume, name), "r+") as file:
            return struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK
    except FileNotFoundError:
        return False
    except OSError:
        return True


def records(volume):
    """Of every fault that runs."""
    return [found for found in (read(volume, name) for name in names(volume) if is_running(volume, name)) if found]


def names(volume):
    try:
        return sorted(os.listdir(os.path.join(volume, "faults")))
    except OSError:
        return []


def of_member(volume, environ, name):
    """The fault of this name that runs, or that is armed and about to begin; "" where there is none."""
    said = read(volume, name)
    if said:
        return said["fault"] if is_running(volume, name) else ""
    return next((fault for fault in environ.get(ARMED, "").split(",") if named(fault) == name), "")


def claimed(volume, name):
    """The file, locked; it stays open as long as the fault runs."""
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
    """As it was started with, {} where it may not be read."""
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(entry).partition("=")[::2] for entry in entries if entry)


def started(pid):
    """When it started, in ticks since the boot, which with the pid is a process for good; None where it has ended."""
    try:
        with open("/proc/%s/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def members(environ):
    """{pid: environment} of the member's living processes that may be read, without this one: by the mark that all of
    them inherit; where there is none, by the volume."""
    name = "OUTRIDER_POD_UID" if environ.get("OUTRIDER_POD_UID") else "OUTRIDER_DIR"
    found = {int(pid): environment(pid) for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()}
    mine = {pid: each for pid, each in found.items() if each and each.get(name) == environ.get(name)}
    return {pid: each for pid, each in mine.items() if started(pid) is not None}


def processes(environ):
    """The same without faults."""
    return {pid: each for pid, each in members(environ).items() if MARK not in each}


def first_process(environ):
    """(pid, start) of the trainer's first process in this container; its end is the container's."""
    if BESIDE in environ:
        return int(environ[BESIDE]), started(environ[BESIDE])
    found = [(started(pid), pid) for pid, each in processes(environ).items() if "OUTRIDER_HOOKS" in each]
    found = [(at, pid) for at, pid in found if at is not None]
    return min(found)[::-1] if found else None


def charged_with(pid):
    """Into the cgroup of this process, where that is another and may be entered: its limits are the fault's too. Where
    it may not be entered, a clause that says so."""
    mounts, refused = cgroup.read("/proc/self/mounts"), ""
    for theirs, own in zip(cgroup.rows(pid), cgroup.rows("self")):
        if theirs != own:
            try:
                with open(os.path.join(cgroup.folder(theirs, mounts), "cgroup.procs"), "w") as file:
                    file.write("0")
            except OSError as error:
                if not LIMITED.isdisjoint(theirs.split(":")[1].split(",")):
                    refused = error.strerror
    said = ", outside of the trainer's cgroup, whose limits do not hold for it (%s)"
    return said % refused if refused else ""


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass
