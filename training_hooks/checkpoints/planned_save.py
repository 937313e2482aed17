"""Chooses when the state of a planned move is saved: the next moment at which a step is complete.

The main thread saves when, after a step, a batch is requested or a module is called: then the scheduler has been
stepped, and the script's own counters belong to that step. An evaluation is such a moment too. For a script that does
neither, the end of its second step from now is the moment. If none of these comes in time (a long evaluation without
batches, a barrier), the listening thread saves and holds the optimizers meanwhile. After the last save before its end a
rank makes no further step for at most `HOLD` seconds, since that step would only be repeated.
"""

import threading
import time

from ..abi import progress_page
from ..telemetry.flight_recorder import LOOK

ASIDE_AFTER = 5.0
"""Most seconds until the listening thread saves itself; it waits a third of the available time if that is less."""
STEP_PATIENCE = 10.0
HOLD = 5.0


class Mover:
    """Serves save requests. `write(step, until)` saves and returns the path; it raises if it cannot."""

    def __init__(self, worker, write):
        self.worker, self.write = worker, write
        self.order, self.seconds, self.asked_at, self.ripe, self.is_last = None, 0.0, 0.0, False, False
        self.answers = {}
        self._taking = threading.Lock()
        self._stepping, self._aside = False, threading.Event()
        self._aside.set()

    @property
    def waits(self):
        return self.order is not None

    # -- the listening thread -----------------------------------------------------------------------------------------
    def hear(self, message):
        """Handles a message, or an empty one: it is called every `LOOK` seconds while a request waits."""
        if "save" in message:
            self._ask(message["save"], float(message.get("seconds", 0.0)), bool(message.get("last")))
        self._look()

    def _ask(self, order, seconds, is_last):
        """Accepts each order once; a repeated order gets the same answer again."""
        if order in self.answers:
            self.worker.channel.send("up", self.answers[order])
        elif self.order is None and self.worker.page.words[progress_page.LAST] == 0:
            self._answer(order, {"error": "no step was made yet, so there is nothing new to save"})
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
        self._aside.clear()  # from here no optimizer begins a step
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
        """Hook before the step of any optimizer."""
        if not self._aside.is_set():
            self._aside.wait(STEP_PATIENCE)
        self._stepping = True

    def after_step(self, *_):
        self._stepping = False

    def stepped(self, step):
        """Called after a counted step."""
        if self.ripe:
            self._save(step)
        elif self.waits:
            self._watch_calls(step)
        self.ripe = self.waits

    def _watch_calls(self, step):
        """The next module call begins the next step; nothing is watched until then."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        main = threading.get_ident()

        def called(module, args):
            if threading.get_ident() == main:
                handle.remove()
                self._save(step)

        handle = register_module_forward_pre_hook(called)

    def at_batch(self):
        """Called when a batch is requested."""
        if self.waits and (self.ripe or self.worker.phase() == progress_page.EVAL):
            self._save(self.worker.page.words[progress_page.STEPS])

    # -- either thread ------------------------------------------------------------------------------------------------
    def _save(self, step):
        if not self._taking.acquire(False):
            return
        try:
            order, self.order, self.ripe = self.order, None, False
            if order is not None:
                result = self._result(step)
                self._answer(order, result)
                if self.is_last and "path" in result:
                    time.sleep(HOLD)
        finally:
            self._taking.release()

    def _result(self, step):
        began, answer = time.monotonic(), {"step": step}
        try:
            answer["path"] = self.write(step, self.asked_at + self.seconds)
        except Exception as error:  # the user's objects may raise anything: training continues
            answer["error"] = "%s: %s" % (type(error).__name__, error)
        return dict(answer, seconds=round(time.monotonic() - began, 3))

    def _answer(self, order, answer):
        of = {"state_saved": order, "generation": self.worker.generation, "local_rank": self.worker.local_rank}
        self.answers = {order: dict(answer, **of)}
        self.worker.channel.send("up", self.answers[order])
