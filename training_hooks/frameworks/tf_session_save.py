"""Requests a save of a monitored session before a planned move, through the chief's own saving hook.

The main thread saves between two runs of the session. So the save equals the session's own, at the path where the
script looks for it. No run waits for it: if no run ends in time, the answer is that there was none.
"""

import time

from ..telemetry import flight_recorder

NAMES = ["session"]


class SessionSaver:
    """`hook`: TensorFlow's CheckpointSaverHook. It does for TensorFlow what `checkpoints.planned_save.Mover` does for
    torch."""

    def __init__(self, worker, hook):
        self.worker, self.hook = worker, hook
        self.order, self.until, self.answers = None, 0.0, {}

    @property
    def waits(self):
        return self.order is not None

    def offer(self):
        flight_recorder.listen(self.worker)
        self._send({"offers": NAMES})

    # -- the listening thread
    def hear(self, message):
        """Handles a message; an empty one comes now and then while an order waits."""
        order = message.get("save")
        if order is not None and order in self.answers:
            self._send(self.answers[order])
        elif order is not None and self.order is None:
            self.until, self.order = time.monotonic() + float(message.get("seconds") or 0.0), order
        elif self.waits and time.monotonic() > self.until:
            self._answer({"error": "no run of the session ended in time"})

    # -- the main thread
    def look(self, session, step):
        """Called between two runs; `step` is the tensor of the global step."""
        if not self.waits:
            return
        began = time.monotonic()
        try:
            at = int(session.run(step))
            self.hook._save(session, at)
            self.hook._timer.update_last_triggered_step(at)
            path = "%s-%d" % (self.hook._save_path, at)
            self._answer({"step": at, "path": path, "seconds": round(time.monotonic() - began, 3)})
        except Exception as error:  # a ps is not available: the session's next run raises that in the script
            self._answer({"error": "%s: %s" % (type(error).__name__, str(error)[:300])})

    def stepped(self, *_):
        """Does nothing: the save waits neither for the end of a step nor for a batch."""

    at_batch = stepped

    # -- either
    def _answer(self, answer):
        order, self.order = self.order, None
        if order is not None:
            self.answers = {order: dict(answer, state_saved=order)}
            self._send(self.answers[order])

    def _send(self, what):
        of = {"generation": self.worker.generation, "local_rank": self.worker.local_rank}
        self.worker.channel.send("up", dict(what, **of))
