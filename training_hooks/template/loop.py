"""The waiting template: one selector loop that obeys the sidecar's orders, forks, reaps and reports.

Everything is an event: an order on agent.sock, SIGCHLD and SIGTERM through the wakeup pipe, a datagram of a worker
process. No order waits for a poll, so a start costs the fork, and a death is reported within milliseconds.

SIGTERM is held back and reported as `terminating`: the sidecar decides what happens to the ranks. Without a sidecar the
signal is passed on to them, and the container ends as it would without Outrider.
"""

import os
import selectors
import signal
import sys
import time

from ..abi import rank_files
from ..checkpoints import reservation
from ..command import invocation, process_specs, trainer_detection
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
from ..telemetry import diagnostics, oom
from . import file_stamps, fork_worker, rehearsal

ALL_SIGNALS = signal.valid_signals() if hasattr(signal, "valid_signals") else range(1, signal.NSIG)


class Child:
    """The values that a worker process needs directly after the fork."""

    def __init__(self, spec, environment, order, generation, streams):
        self.spec, self.environment, self.generation = spec, environment, generation
        self.saves, self.prints = order.get("saves") or (), order.get("prints") or ()
        self.defaults = order.get("defaults") or {}
        self.streams = streams


class Template:
    def __init__(self, volume, description, start):
        """`start.patience`: seconds to wait for a sidecar from `run` on, however long the imports took."""
        self.volume, self.description, self.start = volume, description, start
        self.called = start.called
        self.waiting, self.let_go = unsupervised.Waiting(volume, start.patience), ""
        self.pid = os.getpid()
        self.agent = sidecar_client.Agent(volume, self.announcement)
        self.channel = worker_channel.Channel(volume, "up")
        self.memory = oom.OutOfMemory()
        self.ranks, self.exits = {}, []
        self.generation, self.highest, self.stopped = None, [0, 0], [0, 0]
        self.ending, self.answers, self.finish_code = None, [], None
        self.hearing = worker_messages.Hearing(self.channel, self.agent)
        self.terminated = 0
        self.selector = selectors.DefaultSelector()
        self.wakeup = signals.Wakeup()
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._registered = None
        self.outlet = capture.Outlet()
        self.checking = runner.Checking(self._start_probe, self.agent.send)
        self.rehearsing = rehearsal.Rehearsing(self.agent.send, sys.executable, invocation.command_line(), start.again)
        self.stamps = file_stamps.Stamps()
        self.shortage = reservation.shortage(volume, os.environ)

    # -- the loop -----------------------------------------------------------------------------------------------------
    def run(self):
        """Returns a Child in each worker process, and None if the command runs without Outrider: no sidecar came in
        time, or it released the command (`let_go`)."""
        tree.adopt_orphans()
        exit_state.clear(self.volume)
        self.wakeup.catch()
        self.selector.register(self.wakeup.socket, selectors.EVENT_READ)
        self.selector.register(self.channel.socket, selectors.EVENT_READ)
        self.waiting.begin(time.monotonic())
        while True:
            now = time.monotonic()
            if self.agent.due(now) == 0.0:
                self.agent.connect()
            if not self.agent.ever_connected:
                if self.waiting.is_over(now):
                    return None
                self.waiting.look(now)
            self._watch_agent()
            ready = {key.fileobj for key, _ in self.selector.select(self._pause(now))}
            if self.wakeup.socket in ready:
                self._pass_on_signal(self.wakeup.take())
            self._reap()
            self.outlet.tend(may_start=self.ending is None)
            self.checking.look(now)
            self.rehearsing.look(now)
            self.hearing.forward(self.generation)
            if self.agent.socket is not None and self.agent.socket in ready:
                self.agent.flush()
                for order in self.agent.read():
                    child = self._obey(order)
                    if child is not None:
                        return child
                    if self.let_go:
                        return None
            if self.ending is not None:
                self._end()

    def _pass_on_signal(self, number):
        if not number:
            return
        self.terminated = number
        if not self.agent.send(self._terminating()):
            self._end_all(self.generation or self.highest, {"grace": 10.0}, None)
            self.finish_code = 128 + number

    def _terminating(self):
        return {"event": "terminating", "reason": signal.Signals(self.terminated).name}

    def _watch_agent(self):
        """Registers the agent's current socket, and for writing only while data is left to write."""
        current = self.agent.socket
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.agent.wants_to_write else 0)
        if self._registered is not None and self._registered[0] is not current:
            try:
                self.selector.unregister(self._registered[0])
            except (KeyError, ValueError):
                self._rebuild()
            self._registered = None
        if current is not None and self._registered is None:
            self.selector.register(current, mask)
        elif current is not None and self._registered[1] != mask:
            self.selector.modify(current, mask)
        self._registered = (current, mask) if current is not None else None

    def _rebuild(self):
        """Creates the selector again: a closed socket has left epoll, but not the selector's own map."""
        self.selector.close()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.wakeup.socket, selectors.EVENT_READ)
        self.selector.register(self.channel.socket, selectors.EVENT_READ)

    def _pause(self, now):
        pauses = [] if self.agent.socket else [self.agent.due(now)]
        if not self.agent.ever_connected:
            pauses.append(self.waiting.pause(now))
        if self.ranks and self.memory.path:
            pauses.append(oom.CLAIMED_WITHIN)
        if self.ending is not None:
            pauses.append(self.ending_pause)
        if self.hearing.busy:
            pauses.append(0.01)
        if self.outlet.pause is not None:
            pauses.append(self.outlet.pause)
        if self.checking.pid:
            pauses.append(self.checking.pause(now))
        if self.rehearsing.pause(now) is not None:
            pauses.append(self.rehearsing.pause(now))
        return min(pauses) if pauses else None

    # -- reports ------------------------------------------------------------------------------------------------------
    def announcement(self):
        first = {
            "what": "template",
            "pid": self.pid,
            "rung": "T0",
            "rung_reason": self.description.reason,
            "nproc": self.description.nproc,
            "max_restarts": self.description.max_restarts,
            "can_start": True,
            "running": self.generation if self.ranks else None,
            "workers": sorted([rank.local_rank, pid] for pid, rank in self.ranks.items()),
        }
        again = [*self.exits, *self.checking.lines(), *self.hearing.lines(self.generation)]
        return [first, *again] + ([self._terminating()] if self.terminated else [])

    # -- orders -------------------------------------------------------------------------------------------------------
    def _obey(self, order):
        what = order.get("do")
        if what == "start":
            return self._start(order)
        if what == "stop":
            self._stop(order)
        elif what == "check":
            self.checking.begin(order)
        elif what == "say":
            unsupervised.log(str(order.get("text")))
        elif what == "alone" and not self.ranks and self.ending is None:
            self.let_go = str(order.get("say") or "no master was reached")
        elif what == "finish":
            if order.get("say"):
                termination_message.report(order["say"], os.environ)
            self.finish_code = int(order.get("code", 0))
            self._end_all(self.generation or self.highest, {}, None)
        elif what == "collect" and order.get("what") == rehearsal.WHAT:
            self.rehearsing.begin(order)
        elif what == "collect":
            self.hearing.collect(diagnostics.Collection(self.volume, self.channel, order, self.ranks.values()))
        elif what == "save_state":
            self.hearing.save(order, {rank.local_rank: pid for pid, rank in self.ranks.items()})
        return None

    def _start(self, order):
        generation = list(order["generation"])
        if self.ranks and generation == self.generation and self.ending is None:
            self._say_started()
            return None
        refusal = self._why_not(generation)
        self.highest = max(self.highest, generation)
        if refusal:
            self.agent.send({"event": "not_started", "generation": generation, "error": refusal})
            return None
        self.generation, self.exits = generation, []
        self.memory.forget()
        self.checking.interrupt()
        self.rehearsing.interrupt()
        if self.stamps.changed():
            self.outlet.finish()
            self.start.restart()  # the sidecar finds the same process again, and repeats its order
        self.outlet.follow(order.get("patterns"))
        return self._fork_all(order)

    def _why_not(self, generation):
        if generation < self.highest or generation <= self.stopped:
            return "generation %d.%d has ended" % tuple(generation)
        if self.ending is not None or self.ranks:
            return "worker processes of generation %d.%d are alive" % tuple(self.generation)
        return self.shortage

    def _fork_all(self, order):
        common = dict(order.get("env") or {}, OUTRIDER_GENERATION="%d.%d" % tuple(self.generation))
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL_SIGNALS)
        error = ""
        for spec in order["ranks"]:
            environment = dict(common, **(spec.get("env") or {}))
            rank = int(environment.get("RANK", spec["local_rank"]))
            exception_report.remove(*rank_files.error_paths(self.volume, spec["local_rank"]))
            streams = self.outlet.open(self.generation, rank)
            try:
                pid = os.fork()
            except OSError as problem:
                error = "fork: %s" % problem
                break
            if pid == 0:
                return Child(spec, environment, order, self.generation, streams)
            self._close_in_parent(streams)
            self.ranks[pid] = fork_worker.Rank(pid, spec["local_rank"], rank)
        self.unblock()
        if error:
            self._give_up(error)
        else:
            self._say_started()
        return None

    def _give_up(self, error):
        """Ends every worker process after a failed start."""
        tree.end(list(self.ranks), grace=0.0, handler_grace=0.0, keep=self.outlet.keep)
        self.ranks, self.stopped = {}, self.generation
        self.agent.send({"event": "not_started", "generation": self.generation, "error": error})

    def _say_started(self):
        pids = [pid for pid, _ in sorted(self.ranks.items(), key=lambda item: item[1].local_rank)]
        self.agent.send({"event": "started", "generation": self.generation, "pids": pids})

    def _start_probe(self, order, pipe):
        return runner.forked(order, pipe, self.volume, self.forget_everything)

    # -- deaths -------------------------------------------------------------------------------------------------------
    def _reap(self):
        if self.ending is not None:
            return
        ended = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError:
                break
            if pid == 0:
                break
            if pid in self.ranks:
                ended[pid] = status
            else:
                self.checking.reaped(pid, status) or self.rehearsing.reaped(pid, status)
        for pid, status in oom.killed_first(ended):
            self._exited(self.ranks.pop(pid), status)
        if self.ranks:
            self.memory.look_again()

    def _exited(self, rank, status):
        code, number, at, error = exit_state.how_it_ended(self.volume, rank.local_rank, rank.pid, status)
        if error is None and code == 2 and self.called.kind == "script" and not os.path.exists(self.called.target):
            error = exception_report.unreadable_script(self.called.target)
        if error is None and code == 1 and trainer_detection.is_missing(self.called):
            error = exception_report.missing_module(self.called.target)
        if error is None and code:
            error = exception_report.from_output(self.outlet.last_lines(rank.rank))
        exit = {
            "event": "exited",
            "generation": self.generation,
            "local_rank": rank.local_rank,
            "pid": rank.pid,
            "code": code,
            "signal": number,
            "out_of_memory": self.memory.explains(code, number, at, error),
            "at": at,
            "error": error,
        }
        self.exits.append(exit)
        self.agent.send(exit)
        exit_state.end_session(rank.pid, self.pid, self.ranks, self.outlet.keep)
        exit_state.clear(self.volume)

    # -- stops --------------------------------------------------------------------------------------------------------
    def _stop(self, order):
        generation = list(order["generation"])
        self.highest = max(self.highest, generation)
        if self.generation is not None and self.generation > generation:
            self.agent.send({"event": "stopped", "generation": generation, "killed": 0})
            return
        self._end_all(generation, order, generation)

    def _end_all(self, generation, order, answer):
        """Begins to end every worker process, or continues with the newer patience."""
        self.stopped = max(self.stopped, list(generation))
        if answer is not None and answer not in self.answers:
            self.answers.append(answer)
        self.checking.interrupt()
        self.rehearsing.interrupt()
        save_grace = float(order.get("save_grace", 60.0))
        self.ending = tree.Ending(
            list(self.ranks),
            float(order.get("grace", 0.2)),
            float(order.get("handler_grace", 10.0)),
            save_grace,
            exit_state.is_saving(self.volume, self.ranks, save_grace),
            self.outlet.keep,
            had_left=exit_state.had_left(self.volume, {pid: rank.local_rank for pid, rank in self.ranks.items()}),
        )
        self.ending_pause = 0.0

    def _end(self):
        pause = self.ending.step()
        for pid, status in oom.killed_first(self.ending.by_itself):
            del self.ending.by_itself[pid]  # if two are killed at once, the first is why the second is being stopped
            self._exited(self.ranks.pop(pid), status)
        if pause is not None:
            self.ending_pause = pause
            return
        killed = self.ending.killed
        exit_state.clear(self.volume)
        self.ending, self.ranks, self.exits = None, {}, []
        self.outlet.forget()
        for generation in self.answers:
            self.agent.send({"event": "stopped", "generation": generation, "killed": killed})
        self.answers = []
        if self.finish_code is not None:
            self.outlet.finish()
            os._exit(self.finish_code)

    # -- the ranks' output --------------------------------------------------------------------------------------------
    def _close_in_parent(self, streams):
        for fd in streams or ():
            os.close(fd)

    def redirect(self, child):
        """Called in the child: redirects its output to the reader; without a reader the output is inherited
        unchanged."""
        if child.streams:
            for fd, standard in zip(child.streams, (1, 2)):
                os.dup2(fd, standard)
                os.close(fd)
            if self.outlet.by_lines:
                sys.stdout.reconfigure(line_buffering=True)
        process_specs.leave_stdin(os.environ)
        self.outlet.forget()

    # -- in the child -------------------------------------------------------------------------------------------------
    def unblock(self):
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def forget_everything(self):
        """Closes everything that belongs to the template alone."""
        self.selector.close()
        if self.agent.socket:
            self.agent.socket.close()
        self.channel.close()
        self.wakeup.close()
