"""The launcher as supervisor: runs the command again in each generation, once per member or per local rank.

The same loop watches a command that runs once and is expected to contain a template (`watch`). There it starts nothing,
holds SIGTERM back, and ends with the command's code as a container would, background processes included.

Everything is an event: orders on agent.sock, SIGCHLD and SIGTERM through the wakeup pipe, datagrams of workers.
"""

import os
import selectors
import signal
import sys
import time

from ..abi import rank_files
from ..checkpoints import reservation
from ..command import context, process_specs
from ..command.torchrun_args import is_python
from ..logs import capture
from ..nodecheck import runner
from ..process import (
    exception_report,
    exit_state,
    sidecar_client,
    signals,
    termination_message,
    tree,
    unsupervised,
    worker_channel,
    worker_messages,
)
from ..rank import known_checkpoints
from ..telemetry import diagnostics, oom
from ..template import rehearsal
from . import rank_discovery

PATIENCE = 60.0
LAST_GRACE = {"grace": 0.2, "handler_grace": 10.0, "save_grace": 60.0}


def supervise(argv, environ, settings, each_rank):
    """Never returns: the process ends with the code that the sidecar sends, or with the command's own."""
    supervisor = Supervisor(argv, environ, settings, each_rank)
    code = supervisor.run()
    if code is None:
        _run_alone(settings.get("original") or argv, environ, supervisor)
    os._exit(code & 0xFF)


def _run_alone(argv, environ, supervisor):
    why = supervisor.let_go or "no sidecar connected within %d s" % supervisor.waiting.patience
    context.log("%s; the command runs without Outrider" % why)
    signals.let_go()
    context.execute(argv, {name: value for name, value in environ.items() if name != "OUTRIDER_DIR"})


def patience(environ):
    """Seconds to wait for a sidecar."""
    try:
        return float(environ.get("OUTRIDER_PATIENCE", PATIENCE))
    except ValueError:
        return PATIENCE


class Supervisor:
    def __init__(self, argv, environ, settings, each_rank):
        self.argv, self.environ, self.settings, self.each_rank = argv, environ, settings, each_rank
        self.volume = environ["OUTRIDER_DIR"]
        self.watch = bool(settings.get("watch"))
        self.agent = sidecar_client.Agent(self.volume, self.announcement)
        self.channel = worker_channel.Channel(self.volume, None if self.watch else "up")
        self.hearing = worker_messages.Hearing(self.channel, self.agent)
        self.memory = oom.OutOfMemory()
        self.outlet = capture.Outlet(environ)
        self.observed = rank_discovery.Observed(self.volume)
        self.checking = runner.Checking(self._start_probe, self.agent.send)
        compiling = rehearsal.compiling(argv)
        self.rehearsing = rehearsal.Rehearsing(self.agent.send, argv[0], compiling, environ)
        self.workers, self.exits, self.global_ranks = {}, [], {}
        self.generation, self.highest = None, [0, 0]
        self.ending, self.ending_pause, self.answer_to, self.killed = None, 0.0, None, 0
        self.final, self.command = None, 0
        self.terminated, self.wakeup = 0, signals.Wakeup()
        self.shortage = "" if self.watch else reservation.shortage(self.volume, environ)
        self.waiting, self.let_go = unsupervised.Waiting(self.volume, patience(environ)), ""

    # -- the loop -----------------------------------------------------------------------------------------------------
    def run(self):
        """The exit code, or None if the command runs without Outrider: no sidecar came in time, or it released the
        command (`let_go`)."""
        tree.adopt_orphans()
        self.wakeup.catch()
        self.waiting.begin(time.monotonic())
        if self.watch:
            self.command = process_specs.spawn(self.argv, self.environ, session=False)
        while True:
            now = time.monotonic()
            if self.agent.due(now) == 0.0 and not self.let_go:
                self.agent.connect()
            if not self.watch and not self.agent.ever_connected:
                if self.waiting.is_over(now):
                    return None
                self.waiting.look(now)
            self._wait(self._pause(now))
            if self.let_go and not self.watch:
                return None
            self._pass_on_signal(self.wakeup.take())
            self._reap()
            self.checking.look(now)
            self.rehearsing.look(now)
            self.hearing.forward(self.generation)
            if self.ending is not None and self._end():
                return self.final

    def _pause(self, now):
        due = None if self.let_go else self.agent.due(now)
        pauses = [1.0 if self.memory.path and self.workers else 3600.0]
        pauses += [] if due is None else [due]
        pauses += [] if self.watch or self.agent.ever_connected else [self.waiting.pause(now)]
        pauses += [] if self.ending is None else [self.ending_pause]
        pauses += [0.01] if self.hearing.busy else []
        pauses += [] if self.outlet.pause is None else [self.outlet.pause]
        pauses += [self.checking.pause(now)] if self.checking.pid else []
        pauses += [self.rehearsing.pause(now)] if self.rehearsing.pause(now) is not None else []
        return min(pauses)

    def _wait(self, pause):
        """Waits with a new selector each time: it has a handful of descriptors, and is needed a few times a second at
        most."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.wakeup.socket, selectors.EVENT_READ)
            selector.register(self.channel.socket, selectors.EVENT_READ)
            line = self.agent.socket
            if line:
                writing = selectors.EVENT_WRITE if self.agent.wants_to_write else 0
                selector.register(line, selectors.EVENT_READ | writing)
            ready = {key.fileobj for key, _ in selector.select(pause)}
        if line in ready:
            self.agent.flush()
            for order in self.agent.read() if self.agent.socket else ():
                self._obey(order)

    def _pass_on_signal(self, number):
        if not number:
            return
        self.terminated = number
        if not self.agent.send(self._terminating()):
            self._begin_ending(LAST_GRACE, None, 128 + number)

    def _terminating(self):
        return {"event": "terminating", "reason": signal.Signals(self.terminated).name}

    # -- reports ------------------------------------------------------------------------------------------------------
    def announcement(self):
        first = {
            "what": "launcher",
            "pid": os.getpid(),
            "rung": "T1",
            "rung_reason": self.settings.get("reason") or "the command is restarted in each generation",
            "nproc": self.settings.get("nproc"),
            "max_restarts": self.settings.get("max_restarts"),
            "can_start": not self.watch,
            "running": self.generation if self.workers else None,
            "workers": sorted([local_rank, pid] for pid, local_rank in self.workers.items()),
        }
        again = [*self.exits, *self.checking.lines(), *self.hearing.lines(self.generation)]
        return [first, *again] + ([self._terminating()] if self.terminated else [])

    # -- orders -------------------------------------------------------------------------------------------------------
    def _obey(self, order):
        what = order.get("do")
        if what == "start":
            self._start(order)
        elif what == "stop":
            self._stop(order)
        elif what == "check" and not self.watch:
            self.checking.begin(order)
        elif what == "say" and not self.watch:
            unsupervised.log(str(order.get("text")))
        elif what == "alone" and not self.workers and self.ending is None:
            self.let_go = str(order.get("say") or "no master was reached")
            self.agent.close()
        elif what == "finish":
            if order.get("say"):
                termination_message.report(order["say"], self.environ)
            self._begin_ending(LAST_GRACE, None, int(order.get("code", 0)))
        elif what == "collect" and order.get("what") == rehearsal.WHAT:
            self.rehearsing.begin(order)
        elif what == "collect":
            self._ask(order)
        elif what == "save_state":
            self.hearing.save(order, {local_rank: pid for pid, local_rank in self.workers.items()})

    def _start(self, order):
        generation = list(order["generation"])
        if self.workers and generation == self.generation and self.ending is None:
            self._say_started()
            return
        refusal = self._why_not(generation)
        self.highest = max(self.highest, generation)
        if refusal:
            self.agent.send({"event": "not_started", "generation": generation, "error": refusal})
            return
        self.checking.interrupt()
        self.rehearsing.interrupt()
        self.generation, self.exits = generation, []
        self.memory = oom.OutOfMemory(self.memory.path)
        self.outlet.forget()
        self.outlet.follow(order.get("patterns"))
        self.global_ranks = process_specs.ranks_of(order)
        known_checkpoints.write(self.volume, order.get("saves") or (), order.get("prints") or ())
        try:
            for local_rank, variables in process_specs.environments(order, self.each_rank, self.environ):
                self.workers[self._spawn(local_rank, variables)] = local_rank
        except OSError as error:
            tree.end(list(self.workers), 0.0, 0.0, 0.0, keep=self.outlet.keep, whole=True)
            self.workers = {}
            self.agent.send({"event": "not_started", "generation": generation, "error": "fork: %s" % error})
            return
        self._say_started()

    def _why_not(self, generation):
        if self.watch:
            return "the command runs already, and no template has appeared inside it"
        if generation <= self.highest:
            return "generation %d.%d has ended" % tuple(generation)
        if self.workers or self.ending is not None:
            return "worker processes of generation %d.%d are alive" % tuple(self.generation or self.highest)
        return self.shortage

    def _say_started(self):
        pids = [pid for pid, _ in sorted(self.workers.items(), key=lambda item: item[1])]
        self.agent.send({"event": "started", "generation": self.generation, "pids": pids})

    def _stop(self, order):
        generation = list(order["generation"])
        self.highest = max(self.highest, generation)
        if self.watch or generation < (self.generation or generation):
            self.agent.send({"event": "stopped", "generation": generation, "killed": 0})
            return
        graces = {name: float(order.get(name, LAST_GRACE[name])) for name in LAST_GRACE}
        self._begin_ending(graces, generation, self.final)

    def _start_probe(self, order, pipe):
        return runner.spawned(order, pipe, self.argv, self.environ)

    # -- processes ----------------------------------------------------------------------------------------------------
    def _spawn(self, local_rank, variables):
        paths = rank_files.error_paths(self.volume, local_rank)
        exception_report.remove(*paths)
        streams = self.outlet.open(self.generation, self.global_ranks.get(local_rank, local_rank))
        macro = local_rank if self.settings.get("macros") else None
        return process_specs.spawn(self.argv, dict(self.environ, **variables), streams, macro, why_not=paths[0])

    def _reap(self):
        """Reports workers that ended by themselves; processes that they left behind are only reaped."""
        self.outlet.tend(may_start=self.ending is None)
        self.memory.look_again()
        if self.ending is not None:
            return
        ended = {}
        for pid in tree.children(os.getpid()):
            status = None if pid in self.outlet.keep else tree.reap(pid)
            if status is None:
                continue
            if pid in self.workers:
                ended[pid] = status
            elif pid == self.command:
                self._command_ended(status)
            else:
                self.checking.reaped(pid, status) or self.rehearsing.reaped(pid, status)
        for pid, status in oom.killed_first(ended):
            self._tell_exit(pid, self.workers.pop(pid), status)

    def _tell_exit(self, pid, local_rank, status):
        code, number, at, error = exit_state.how_it_ended(self.volume, local_rank, pid, status)
        if error is None and code:
            error = exception_report.from_output(self.outlet.last_lines(self.global_ranks.get(local_rank, local_rank)))
        message = {
            "event": "exited",
            "generation": self.generation,
            "local_rank": local_rank,
            "pid": pid,
            "code": code,
            "signal": number,
            "out_of_memory": self.memory.explains(code, number, at, error),
            "at": at,
            "error": error,
        }
        self.exits.append(message)
        self.agent.send(message)

    def _command_ended(self, status):
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self.command = 0
        self.agent.send({"event": "command_ended", "code": code, "reason": "the command ended with code %d" % code})
        self._begin_ending(LAST_GRACE, None, code)

    # -- endings ------------------------------------------------------------------------------------------------------
    def _begin_ending(self, graces, answer_to, final):
        self.checking.interrupt()
        self.rehearsing.interrupt()
        roots = list(self.workers) + ([self.command] if self.command else [])
        whole = self.watch or not is_python(os.path.basename(self.argv[0]))
        killed = self.ending.killed if self.ending else 0
        is_saving, had_left = (
            self._is_saving(graces["save_grace"]),
            exit_state.had_left(self.volume, dict(self.workers)),
        )
        self.ending = tree.Ending(
            roots, is_saving=is_saving, keep=self.outlet.keep, whole=whole, had_left=had_left, **graces
        )
        self.ending.killed = killed
        self.ending_pause, self.final = 0.0, final
        self.answer_to = answer_to or self.answer_to

    def _is_saving(self, save_grace):
        """Whether a rank of the command saves. Then none of its processes is signalled: a shell or launcher above the
        rank would pass the signal on to it, and so would one that loses another of its ranks."""
        began = time.monotonic()

        def is_saving(pid):
            readings = self.observed.readings(self.generation, self.outlet.keep)
            return bool(rank_discovery.savers(readings, time.monotonic() - began, save_grace))

        return is_saving

    def _end(self):
        """Continues a stop; returns True if the launcher itself must end."""
        pause = self.ending.step()
        for pid, status in oom.killed_first(self.ending.by_itself):
            del self.ending.by_itself[pid]  # if two are killed at once, the first is why the second is being stopped
            if pid in self.workers:
                self._tell_exit(pid, self.workers.pop(pid), status)
        if pause is not None:
            self.ending_pause = pause
            return False
        killed, self.ending = self.ending.killed, None
        self.workers, self.exits = {}, []
        exit_state.clear(self.volume)
        if self.answer_to:
            self.agent.send({"event": "stopped", "generation": self.answer_to, "killed": killed})
            self.answer_to = None
        if self.final is None:
            self.outlet.forget()
            return False
        self.outlet.finish()
        sys.stdout.flush()
        return True

    def _ask(self, order):
        readings = self.observed.readings(self.generation, self.outlet.keep)
        ranks, mute = self.observed.split(readings, self.workers, self.global_ranks)
        self.hearing.collect(diagnostics.Collection(self.volume, self.channel, order, ranks, mute))
