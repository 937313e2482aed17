"""When the state of a planned move is saved. It is the next moment at which the state is that of a whole step.

The main thread does it, where a batch is asked for after a step has ended, or else a module is called: then the
scheduler has been stepped and the script's own numbers are those of that step. An evaluation is such a moment too. A
script that does neither saves at the end of its second step from now on. Where nothing of that comes in time (a long
evaluation without batches, a barrier), the listening thread saves, and no optimizer steps meanwhile. Who was told that
its end comes next then makes no further step, which would only be repeated, for at most `HOLD`.
"""

import threading
import time

from ..abi import progress_page
from ..telemetry.flight_recorder import LOOK

ASIDE_AFTER = 5.0
"""Seconds after which the listening thread saves itself, or a third of the time there is, if that is less."""
STEP_PATIENCE = 10.0
HOLD = 5.0


class Mover:
    """`write(step)` saves and returns what is told of it; it raises where that cannot be done."""

    def __init__(self, worker, write):
        self.worker, self.write = worker, write
        self.order, self.seconds, self.asked_at, self.ripe, self.is_last = None, 0.0, 0.0, False, False
        self.told = {}
        self._taking = threading.Lock()
        self._stepping, self._aside = False, threading.Event()
        self._aside.set()

    @property
    def waits(self):
        return self.order is not None

    # -- the listening thread -----------------------------------------------------------------------------------------
    def hear(self, message):
        """A message, or an empty one: it is called every `LOOK` while something waits."""
        if "save" in message:
            self._ask(message["save"], float(message.get("seconds", 0.0)), bool(message.get("last")))
        self._look()

    def _ask(self, order, seconds, is_last):
        """Once an order; one that was answered is answered again."""
        if order in self.told:
            self.worker.channel.tell("up", self.told[order])
        elif self.order is None and self.worker.page.words[progress_page.LAST] == 0:
            self._tell(order, {"error": "no step was made yet, so there is nothing new to save"})
        elif self.order is None:
            self.seconds, self.asked_at, self.ripe, self.is_last = seconds, time.monotonic(), False, is_last
            self.order = order

    def _look(self):
        if not self.waits:
            return
        self.worker.phase_changed()
        if time.monotonic() - self.asked_at >= min(ASIDE_AFTER, self.seconds / 3):
            self._save_aside()

    def _save_aside(self):
        self._aside.clear()  # from here on no optimizer begins a step
        try:
            until = time.monotonic() + STEP_PATIENCE
            while self._stepping and time.monotonic() < until:
                time.sleep(LOOK)
            if not self._stepping:
                self._save(self.worker.page.words[progress_page.STEPS])
        finally:
            self._aside.set()

    # -- the main thread ----------------------------------------------------------------------------------------------
    def before_step(self, *_):
        """Of any optimizer."""
        if not self._aside.is_set():
            self._aside.wait(STEP_PATIENCE)
        self._stepping = True

    def after_step(self, *_):
        self._stepping = False

    def stepped(self, step):
        """A step that counts has ended."""
        if self.ripe:
            self._save(step)
        elif self.waits:
            self._watch_calls(step)
        self.ripe = self.waits

    def _watch_calls(self, step):
        """The next call of a module is the beginning of the next step; until then nothing is watched."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        main = threading.get_ident()

        def called(module, args):
            if threading.get_ident() == main:
                handle.remove()
                self._save(step)

        handle = register_module_forward_pre_hook(called)

    def at_batch(self):
        """A batch is asked for."""
        if self.waits and (self.ripe or self.worker.phase() == progress_page.EVAL):
            self._save(self.worker.page.words[progress_page.STEPS])

    # -- either -------------------------------------------------------------------------------------------------------
    def _save(self, step):
        if not self._taking.acquire(False):
            return
        try:
            order, self.order, self.ripe = self.order, None, False
            if order is not None:
                result = self._result(step)
                self._tell(order, result)
                if self.is_last and "path" in result:
                    time.sleep(HOLD)
        finally:
            self._taking.release()

    def _result(self, step):
        began, answer = time.monotonic(), {"step": step}
        try:
            answer["path"] = self.write(step, self.asked_at + self.seconds)
        except Exception as error:  # whatever the user's objects raise: training goes on
            answer["error"] = "%s: %s" % (type(error).__name__, error)
        return dict(answer, seconds=round(time.monotonic() - began, 3))

    def _tell(self, order, answer):
        of = {"state_saved": order, "generation": self.worker.generation, "local_rank": self.worker.local_rank}
        self.told = {order: dict(answer, **of)}
        self.worker.channel.tell("up", self.told[order])
