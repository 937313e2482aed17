"""Makes one fault in the container where it is started, holds it, and undoes it. `outrider chaos` starts it, and so
does what `OUTRIDER_CHAOS` has armed before the start.

    main.py start cpu-load=90:60s      answers with one JSON line; the fault goes on in a process of its own
    main.py undo [NAME]                main.py list
    main.py signal launcher KILL       for good, and no fault: one process, or `all` of this container
    main.py beside cut-network:60s     in a pod of its own, for another one (`pod_network`)

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
    """The exit code: 1 where the answer has an `error`."""
    told = {"start": _start, "undo": _undo, "list": _list, "signal": _signal, "hold": _hold, "beside": _beside}
    try:
        answer = told[words[0]](os.environ["OUTRIDER_DIR"], *words[1:])
    except base.Refused as error:
        answer = {"error": str(error)}
    except (IndexError, KeyError, TypeError):
        answer = {
            "error": "the program of faults is called as: start FAULT, undo [NAME], list or signal PART NAME; "
            "OUTRIDER_DIR must be set"
        }
    if answer is not None:
        print(json.dumps(answer, sort_keys=True), flush=True)
    return 1 if answer and "error" in answer else 0


def _start(volume, fault):
    """Answers once the fault is there."""
    reading, writing = os.pipe()
    pid = base.detached(fault, dict(os.environ), writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if not said:
        raise base.Refused("%s ended before it was there: killed, for want of memory perhaps" % fault)
    return json.loads(said.decode())


def _undo(volume, name=None):
    """Every fault that runs, or the one of this name; answers when they are gone."""
    running = [each for each in base.records(volume) if name in (None, base.named(each["fault"]))]
    wanted = {base.named(each["fault"]) for each in running}
    for pid, environ in base.members(os.environ).items():
        if environ.get(base.MARK) in wanted:
            base.send(pid, signal.SIGTERM)
    until = time.monotonic() + UNDO_PATIENCE
    for each in running:
        while base.is_running(volume, base.named(each["fault"])):
            if time.monotonic() >= until:
                raise base.Refused("%s (pid %d) does not end" % (each["fault"], each["pid"]))
            time.sleep(0.01)
    return {"undone": [each["fault"] for each in running]}


def _list(volume):
    """What runs, and what could not be made."""
    refused = [
        each for each in (base.read(volume, name) for name in base.names(volume)) if each.get("ended") == base.REFUSED
    ]
    return {"running": base.records(volume), "refused": refused}


def _signal(_volume, part, name):
    """Every process of the part, and what was forked meanwhile, until there is no new one."""
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
    """In the process that is the fault; `session`: that of whoever started it."""
    from . import kinds as chaos_kinds
    from . import network

    kinds = dict(chaos_kinds.KINDS, **network.KINDS)
    writing = int(writing)
    try:
        if writing < 0:
            _wait_to_begin(fault, network.KINDS)
        one = Holding(volume, fault, int(session), kinds)
    except base.Refused as error:
        _tell(writing, {"error": str(error)})
        return None
    _tell(writing, one.told())
    one.hold()
    return None


def _wait_to_begin(fault, waiting):
    """An armed fault of the network begins with the member's first ranks: the master never meets a member that is cut
    off before its first word, which is another fault than the one that was asked for."""
    from . import kinds as chaos_kinds

    first = base.first_process(os.environ)
    while base.named(fault) in waiting and first and not chaos_kinds.workers(os.environ):
        if base.started(first[0]) != first[1]:
            return
        time.sleep(LOOK_EVERY)


def _beside(volume, fault):
    from . import pod_network

    pod_network.enter(volume, fault)


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
        name, value, self.seconds = base.parsed(fault)
        if name not in kinds:
            raise base.Refused("there is no fault %r here; there are %s" % (name, ", ".join(sorted(kinds))))
        self.first = base.first_process(os.environ)
        if self.first is None:
            raise base.Refused(
                "no trainer runs here: there is no process with OUTRIDER_HOOKS that belongs to %s" % volume
            )
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

    def told(self):
        return self.record

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
        """In one piece of one length, so that a reader finds it whole."""
        os.pwrite(self.file.fileno(), json.dumps(self.record).encode().ljust(RECORD), 0)
