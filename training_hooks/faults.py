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

import json
import os
import signal
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

from . import fault_base

LOOK_EVERY = 0.2
UNDO_PATIENCE = 10.0
RECORD = 1024


def main(words):
    """The exit code: 1 where the answer has an `error`."""
    told = {"start": _start, "undo": _undo, "list": _list, "signal": _signal, "hold": _hold, "beside": _beside}
    try:
        answer = told[words[0]](os.environ["OUTRIDER_DIR"], *words[1:])
    except fault_base.Refused as error:
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
    pid = fault_base.detached(fault, dict(os.environ), writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise fault_base.Refused("%s ended before it was there: killed, for want of memory perhaps" % fault)
    return json.loads(said.decode())


def _undo(volume, name=None):
    """Every fault that runs, or the one of this name; answers when they are gone."""
    running = [each for each in fault_base.records(volume) if name in (None, fault_base.named(each["fault"]))]
    wanted = {fault_base.named(each["fault"]) for each in running}
    for pid, environ in fault_base.members(os.environ).items():
        if environ.get(fault_base.MARK) in wanted:
            fault_base.send(pid, signal.SIGTERM)
    until = time.monotonic() + UNDO_PATIENCE
    for each in running:
        while fault_base.is_running(volume, fault_base.named(each["fault"])):
            if time.monotonic() >= until:
                raise fault_base.Refused("%s (pid %d) does not end" % (each["fault"], each["pid"]))
            time.sleep(0.01)
    return {"undone": [each["fault"] for each in running]}


def _list(volume):
    """What runs, and what could not be made."""
    refused = [
        each
        for each in (fault_base.read(volume, name) for name in fault_base.names(volume))
        if each.get("ended") == fault_base.REFUSED
    ]
    return {"running": fault_base.records(volume), "refused": refused}


def _signal(_volume, part, name):
    """Every process of the part, and what was forked meanwhile, until there is no new one."""
    from . import fault_kinds

    number, found = signal.Signals["SIG" + name], fault_kinds.PARTS[part]
    reached = found(os.environ)
    fresh = reached
    while fresh:
        for pid in fresh:
            fault_base.send(pid, number)
        fresh = [pid for pid in found(os.environ) if pid not in reached] if part == "all" else []
        reached = reached + fresh
    if not reached:
        raise fault_base.Refused("no %s runs here now" % fault_kinds.NAMED[part])
    return {"pids": reached}


def _hold(volume, fault, writing, session):
    """In the process that is the fault; `session`: that of whoever started it."""
    from . import fault_kinds, network_faults

    kinds = dict(fault_kinds.KINDS, **network_faults.KINDS)
    writing = int(writing)
    try:
        one = Holding(volume, fault, int(session), kinds)
    except fault_base.Refused as error:
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


class Holding:
    """A fault from its beginning to its undoing. Raises Refused where it cannot be made."""

    def __init__(self, volume, fault, session, kinds):
        name, value, self.seconds = fault_base.parsed(fault)
        if name not in kinds:
            raise fault_base.Refused("there is no fault %r here; there are %s" % (name, ", ".join(sorted(kinds))))
        self.first = fault_base.first_process(os.environ)
        if self.first is None:
            raise fault_base.Refused(
                "no trainer runs here: there is no process with OUTRIDER_HOOKS that belongs to %s" % volume
            )
        self.outside = "" if fault_base.BESIDE in os.environ else fault_base.charged_with(self.first[0])
        signal.pthread_sigmask(signal.SIG_BLOCK, fault_base.ENDING)
        self.file = fault_base.claimed(volume, name)
        self.record = {"fault": fault, "pid": os.getpid(), "since": time.time(), "ended": None}
        self.kind = kinds[name](value, session)
        self._begin()
        self.began = time.monotonic()

    def _begin(self):
        self._write()
        try:
            self.kind.begin()
        except fault_base.Refused as error:
            self.record.update(ended=fault_base.REFUSED, why=str(error))
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
                found = signal.sigtimedwait(fault_base.ENDING, self._pause())
                ended = fault_base.UNDONE if found else self._why_to_end()
        finally:
            self.kind.undo()
            self.record["ended"] = ended
            self._write()

    def _pause(self):
        left = LOOK_EVERY if self.seconds is None else self.began + self.seconds - time.monotonic()
        return max(0.0, min(LOOK_EVERY, left))

    def _why_to_end(self):
        if self.seconds is not None and time.monotonic() >= self.began + self.seconds:
            return fault_base.OVER
        return fault_base.GONE if fault_base.started(self.first[0]) != self.first[1] or self.kind.is_over() else None

    def _write(self):
        """In one piece of one length, so that a reader finds it whole."""
        os.pwrite(self.file.fileno(), json.dumps(self.record).encode().ljust(RECORD), 0)
