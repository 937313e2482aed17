"""Makes one fault in the container where it is started, holds it, and undoes it: `outrider chaos`, and what is armed by
`OUTRIDER_CHAOS` before the start.

    faults.py start cpu-load=90:60s      answers with one JSON line; the fault goes on in a process of its own
    faults.py undo [NAME]                faults.py list
    faults.py signal launcher KILL       for good, and no fault: one process, or `all` of this container
    faults.py beside cut-network:60s     in a pod of its own, for another one (beside_a_pod.py)

A fault is a process beside the trainer, as somebody's runaway program would be. Its laws:

- It is always undone: when its time is over, on SIGTERM, when the first process of its container is gone.
- It runs as long as it holds the record lock on `faults/<name>` in the member's volume, so no pid is ever believed, and
  one fault of a name runs at a time. The file says how the last one ended: what was undone or is over is not armed
  again where the template of the same container begins anew.
- It is nobody's child that matters: a template with children could not be forked, and a stop ends what is below it.
- It writes nothing where the trainer writes, and whatever goes wrong is a sentence in its answer.
"""

import fcntl
import json
import os
import signal
import struct
import sys
import time

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.abspath(__file__))
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    sys.exit(importlib.import_module("_outrider_hooks.faults").main(sys.argv[1:]))

ARMED = "OUTRIDER_CHAOS"
MARK = "OUTRIDER_FAULT"
"""In the environment of a fault's processes: its name. No orphan's end is theirs."""
BESIDE = "OUTRIDER_BESIDE"
"""In the environment of a fault that is made from outside of its pod: the pid of the process whose end is the pod's."""
LIMITED = {"cpu", "memory", ""}
"""Controllers whose limits a fault may meet; "" stands for all of version 2."""
LOOK_EVERY = 0.2
UNDO_PATIENCE = 10.0
RECORD = 1024
FLOCK = "@hhqqi0q"
"""`struct flock` of 64 bits (linux/fcntl.h): type, whence, start, length, pid."""
UNDONE, OVER, GONE, REFUSED = "undone", "over", "gone", "refused"
"""How a fault has ended: somebody said so, its time was over, what it was made in or for has ended, or never began."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Refused(Exception):
    """The fault cannot be made here; one sentence."""


def main(words):
    """The exit code: 1 where the answer has an `error`."""
    told = {"start": _start, "undo": _undo, "list": _list, "signal": _signal, "hold": _hold, "beside": _beside}
    try:
        answer = told[words[0]](os.environ["OUTRIDER_DIR"], *words[1:])
    except Refused as error:
        answer = {"error": str(error)}
    except (IndexError, KeyError, TypeError):
        answer = {
            "error": "faults.py is called as: start FAULT, undo [NAME], list or signal PART NAME, with OUTRIDER_DIR set"
        }
    if answer is not None:
        print(json.dumps(answer, sort_keys=True), flush=True)
    return 1 if answer and "error" in answer else 0


def _start(volume, fault):
    """Answers once the fault is there."""
    reading, writing = os.pipe()
    pid = _detached(fault, dict(os.environ), writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise Refused("%s ended before it was there: killed, for want of memory perhaps" % fault)
    return json.loads(said.decode())


def _undo(volume, name=None):
    """Every fault that runs, or the one of this name; answers when they are gone."""
    running = [each for each in records(volume) if name in (None, named(each["fault"]))]
    wanted = {named(each["fault"]) for each in running}
    for pid, environ in members(os.environ).items():
        if environ.get(MARK) in wanted:
            send(pid, signal.SIGTERM)
    until = time.monotonic() + UNDO_PATIENCE
    for each in running:
        while is_running(volume, named(each["fault"])):
            if time.monotonic() >= until:
                raise Refused("%s (pid %d) does not end" % (each["fault"], each["pid"]))
            time.sleep(0.01)
    return {"undone": [each["fault"] for each in running]}


def _list(volume):
    """What runs, and what could not be made."""
    refused = [each for each in (read(volume, name) for name in _names(volume)) if each.get("ended") == REFUSED]
    return {"running": records(volume), "refused": refused}


def _signal(_volume, part, name):
    """Every process of the part, and what was forked meanwhile, until there is no new one."""
    from . import fault_kinds

    number, found = signal.Signals["SIG" + name], fault_kinds.PARTS[part]
    reached = found(os.environ)
    fresh = reached
    while fresh:
        for pid in fresh:
            send(pid, number)
        fresh = [pid for pid in found(os.environ) if pid not in reached] if part == "all" else []
        reached = reached + fresh
    if not reached:
        raise Refused("no %s runs here now" % fault_kinds.NAMED[part])
    return {"pids": reached}


def _hold(volume, fault, writing, session):
    """In the process that is the fault; `session`: that of whoever started it."""
    from . import fault_kinds, network_faults

    kinds = dict(fault_kinds.KINDS, **network_faults.KINDS)
    writing = int(writing)
    try:
        one = Holding(volume, fault, int(session), kinds)
    except Refused as error:
        _tell(writing, {"error": str(error)})
        return None
    _tell(writing, one.told())
    one.hold()
    return None


def _beside(volume, fault):
    from . import beside_a_pod

    beside_a_pod.enter(volume, fault)


def _tell(writing, line):
    if writing >= 0:
        try:
            os.write(writing, json.dumps(line, sort_keys=True).encode() + b"\n")
        except OSError:  # whoever asked has gone
            pass
        os.close(writing)


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
                os.waitpid(_detached(fault, environ, -1), 0)
    except (OSError, KeyError):
        pass


def _detached(fault, environ, writing):
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
            words = [sys.executable, "-I", "-S", os.path.abspath(__file__), "hold", fault, str(writing), str(session)]
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
    return [found for found in (read(volume, name) for name in _names(volume) if is_running(volume, name)) if found]


def _names(volume):
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


def _claimed(volume, name):
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


class Holding:
    """A fault from its beginning to its undoing. Raises Refused where it cannot be made."""

    def __init__(self, volume, fault, session, kinds):
        name, value, self.seconds = parsed(fault)
        if name not in kinds:
            raise Refused("there is no fault %r here; there are %s" % (name, ", ".join(sorted(kinds))))
        self.first = first_process(os.environ)
        if self.first is None:
            raise Refused("no trainer runs here: there is no process with OUTRIDER_HOOKS that belongs to %s" % volume)
        self.outside = "" if BESIDE in os.environ else charged_with(self.first[0])
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self.file = _claimed(volume, name)
        self.record = {"fault": fault, "pid": os.getpid(), "since": time.time(), "ended": None}
        self.kind = kinds[name](value, session)
        self._begin()
        self.began = time.monotonic()

    def _begin(self):
        self._write()
        try:
            self.kind.begin()
        except Refused as error:
            self.record.update(ended=REFUSED, why=str(error))
            self._write()
            raise
        self.record["about"] = self.kind.about + self.outside
        self._write()

    def told(self):
        return self.record

    def hold(self):
        ended = None
        try:
            while ended is None:
                found = signal.sigtimedwait(ENDING, self._pause())
                ended = UNDONE if found else self._why_to_end()
        finally:
            self.kind.undo()
            self.record["ended"] = ended
            self._write()

    def _pause(self):
        left = LOOK_EVERY if self.seconds is None else self.began + self.seconds - time.monotonic()
        return max(0.0, min(LOOK_EVERY, left))

    def _why_to_end(self):
        if self.seconds is not None and time.monotonic() >= self.began + self.seconds:
            return OVER
        return GONE if started(self.first[0]) != self.first[1] or self.kind.is_over() else None

    def _write(self):
        """In one piece of one length, so that a reader finds it whole."""
        os.pwrite(self.file.fileno(), json.dumps(self.record).encode().ljust(RECORD), 0)


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
    from . import cgroup

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
