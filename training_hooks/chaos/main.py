"""Makes one fault in the container where it is started, holds it, and undoes it.

`outrider chaos` starts it, and so do the faults armed by `OUTRIDER_CHAOS` at the container's start.

    main.py start cpu-load=90:60s      answers with one JSON line; the fault runs in a process of its own
    main.py undo [NAME]                main.py list
    main.py signal launcher KILL       not a fault, and final: one process, or `all` of this container
    main.py beside cut-network:60s     in a pod of its own, for another one (`pod_network`)

A fault is a process beside the trainer, like a user's runaway program. Rules:

- It is always undone: after its time, on SIGTERM, or when the first process of its container has ended.
- It runs as long as it holds the record lock on `faults/<name>` in the member's volume, so no pid is trusted, and one
  fault of a name runs at a time. The file records how the last one ended: a fault that was undone or is over is not
  armed again if the template of the same container starts over.
- It is not a child of the template or launcher: a template with children could not fork, and a stop ends all
  descendants.
- It does not write to the trainer's output; every failure is a sentence in its answer.
"""

import json
import os
import signal
import sys
import time

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    sys.exit(importlib.import_module("_outrider_hooks.chaos.main").main(sys.argv[1:]))

from . import base

LOOK_EVERY = 0.2
UNDO_PATIENCE = 10.0
RECORD = 1024


def main(words):
    """The exit code: 1 if the answer has an `error`."""
    commands = {"start": _start, "undo": _undo, "list": _list, "signal": _signal, "hold": _hold, "beside": _beside}
    try:
        answer = commands[words[0]](os.environ["OUTRIDER_DIR"], *words[1:])
    except base.Refused as error:
        answer = {"error": str(error)}
    except (IndexError, KeyError, TypeError):
        answer = {
            "error": "usage: start FAULT, undo [NAME], list or signal PART NAME; the environment variable "
            "OUTRIDER_DIR is required"
        }
    if answer is not None:
        print(json.dumps(answer, sort_keys=True), flush=True)
    return 1 if answer and "error" in answer else 0


def _start(volume, fault):
    """Answers once the fault is active."""
    reading, writing = os.pipe()
    pid = base.detached(fault, dict(os.environ), writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        line = pipe.read()
    os.waitpid(pid, 0)
    if not line:
        raise base.Refused("%s ended before it was active; it may have been killed for lack of memory" % fault)
    return json.loads(line.decode())


def _undo(volume, name=None):
    """Undoes every running fault, or the one of this name; answers when they have ended."""
    running = [each for each in base.records(volume) if name in (None, base.named(each["fault"]))]
    ending = {base.named(each["fault"]) for each in running}
    for pid, environ in base.members(os.environ).items():
        if environ.get(base.MARK) in ending:
            base.send(pid, signal.SIGTERM)
    until = time.monotonic() + UNDO_PATIENCE
    for each in running:
        while base.is_running(volume, base.named(each["fault"])):
            if time.monotonic() >= until:
                raise base.Refused("%s (pid %d) does not end" % (each["fault"], each["pid"]))
            time.sleep(0.01)
    return {"undone": [each["fault"] for each in running]}


def _list(volume):
    """The running faults, and those that could not be made."""
    refused = [
        each for each in (base.read(volume, name) for name in base.names(volume)) if each.get("ended") == base.REFUSED
    ]
    return {"running": base.records(volume), "refused": refused}


def _signal(_volume, part, name):
    """Signals every process of the part, and its new children, until there are no new ones."""
    from . import kinds as chaos_kinds

    number, found = signal.Signals["SIG" + name], chaos_kinds.PARTS[part]
    reached = found(os.environ)
    fresh = reached
    while fresh:
        for pid in fresh:
            base.send(pid, number)
        fresh = [pid for pid in found(os.environ) if pid not in reached] if part == "all" else []
        reached = reached + fresh
    if not reached:
        raise base.Refused("no %s runs here now" % chaos_kinds.NAMED[part])
    return {"pids": reached}


def _hold(volume, fault, writing, session):
    """The main program of the fault's process; `session`: that of the process that started it."""
    from . import kinds as chaos_kinds
    from . import network

    kinds = dict(chaos_kinds.KINDS, **network.KINDS)
    writing = int(writing)
    try:
        if writing < 0:
            _wait_to_begin(fault, network.KINDS)
        one = Holding(volume, fault, int(session), kinds)
    except base.Refused as error:
        _send(writing, {"error": str(error)})
        return None
    _send(writing, one.record)
    one.hold()
    return None


def _wait_to_begin(fault, waiting):
    """Delays an armed network fault until the member's first ranks start: otherwise the master would never see the
    member, which is another fault than the requested one."""
    from . import kinds as chaos_kinds

    first = base.first_process(os.environ)
    while base.named(fault) in waiting and first and not chaos_kinds.workers(os.environ):
        if base.started(first[0]) != first[1]:
            return
        time.sleep(LOOK_EVERY)


def _beside(volume, fault):
    from . import pod_network

    pod_network.enter(volume, fault)


def _send(writing, line):
    if writing >= 0:
        try:
            os.write(writing, json.dumps(line, sort_keys=True).encode() + b"\n")
        except OSError:  # the requesting process has ended
            pass
        os.close(writing)


class Holding:
    """A fault from its start to its undoing. Raises Refused if it cannot be made."""

    def __init__(self, volume, fault, session, kinds):
        name, value, self.seconds = base.parsed(fault)
        if name not in kinds:
            raise base.Refused("Unsupported value: %r: supported values: %s" % (name, ", ".join(sorted(kinds))))
        self.first = base.first_process(os.environ)
        if self.first is None:
            raise base.Refused("no trainer runs here: no process with OUTRIDER_HOOKS belongs to %s" % volume)
        self.outside = "" if base.BESIDE in os.environ else base.charged_with(self.first[0])
        signal.pthread_sigmask(signal.SIG_BLOCK, base.ENDING)
        self.file = base.claimed(volume, name)
        self.record = {"fault": fault, "pid": os.getpid(), "since": time.time(), "ended": None}
        self.kind = kinds[name](value, session)
        self._begin()
        self.began = time.monotonic()

    def _begin(self):
        self._write()
        try:
            self.kind.begin()
        except base.Refused as error:
            self.record.update(ended=base.REFUSED, why=str(error))
            self._write()
            raise
        self.record["about"] = self.kind.about + self.outside
        self._write()

    def hold(self):
        ended = None
        try:
            while ended is None:
                found = signal.sigtimedwait(base.ENDING, self._pause())
                ended = base.UNDONE if found else self._why_to_end()
        finally:
            self.kind.undo()
            self.record["ended"] = ended
            self._write()

    def _pause(self):
        left = LOOK_EVERY if self.seconds is None else self.began + self.seconds - time.monotonic()
        return max(0.0, min(LOOK_EVERY, left))

    def _why_to_end(self):
        if self.seconds is not None and time.monotonic() >= self.began + self.seconds:
            return base.OVER
        return base.GONE if base.started(self.first[0]) != self.first[1] or self.kind.is_over() else None

    def _write(self):
        """Writes the record in one piece of constant length, so that a reader always finds it complete."""
        os.pwrite(self.file.fileno(), json.dumps(self.record).encode().ljust(RECORD), 0)
