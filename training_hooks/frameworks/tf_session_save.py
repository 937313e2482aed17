"""Asks a monitored session that saves to save before a planned move. It asks the chief's, by the very hook with which
it saves.

Between two of its runs its main thread does it, so that what is saved is what it would have saved itself, where its
script would look for it. Nothing waits for that: where no run ends in time, the answer is that there was none.
"""

import time

from ..telemetry import flight_recorder

NAMES = ["session"]


class SessionSaver:
    """`hook`: TensorFlow's CheckpointSaverHook. What `checkpoints.planned_save.Mover` is for torch."""

    def __init__(self, worker, hook):
        self.worker, self.hook = worker, hook
        self.order, self.until, self.told = None, 0.0, {}

    @property
    def waits(self):
        return self.order is not None

    def offer(self):
        flight_recorder.listen(self.worker)
        self._tell({"offers": NAMES})

    # -- the listening thread
    def hear(self, message):
        """An empty one now and then, while an order waits."""
        order = message.get("save")
        if order is not None and order in self.told:
            self._tell(self.told[order])
        elif order is not None and self.order is None:
            self.until, self.order = time.monotonic() + float(message.get("seconds") or 0.0), order
        elif self.waits and time.monotonic() > self.until:
            self._answer({"error": "no run of the session ended in time"})

    # -- the main thread
    def look(self, session, step):
        """Between two runs; `step` is the tensor of the global step."""
        if not self.waits:
            return
        began = time.monotonic()
        try:
            at = int(session.run(step))
            self.hook._save(session, at)
            self.hook._timer.update_last_triggered_step(at)
            path = "%s-%d" % (self.hook._save_path, at)
            self._answer({"step": at, "path": path, "seconds": round(time.monotonic() - began, 3)})
        except Exception as error:  # a ps that is away: the session's next run says so to the script itself
            self._answer({"error": "%s: %s" % (type(error).__name__, str(error)[:300])})

    def stepped(self, *_):
        """Nor does it wait for the end of a step, or for a batch."""

    at_batch = stepped

    # -- either
    def _answer(self, answer):
        order, self.order = self.order, None
        if order is not None:
            self.told = {order: dict(answer, state_saved=order)}
            self._tell(self.told[order])

    def _tell(self, what):
        of = {"generation": self.worker.generation, "local_rank": self.worker.local_rank}
        self.worker.channel.send("up", dict(what, **of))
