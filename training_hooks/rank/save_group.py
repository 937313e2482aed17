"""Groups saves that follow each other without a step between them into one checkpoint.

Scripts write their model to one file and their optimizer to another, and so do transformers and accelerate. A rank that
is stopped between the two writes (a restart may begin at the end of the first save) would leave a checkpoint that does
not load, or that mixes two steps. So a save is reported, and the page leaves the checkpoint phase, only when the script
continues: it requests a batch, calls a module, steps an optimizer or ends. If no save has followed for `PAUSE` seconds,
the group is closed too, since the script may be waiting in a barrier for ranks that are gone.
"""

import os
import sys
import threading
import time

PAUSE = 0.5


class Together:
    """Calls `over()` once for a group of saves, and `report(message)` with each delayed message of the group."""

    def __init__(self, report, over):
        self.report, self.over = report, over
        self.waits = False
        """Whether a save is complete and more saves of the same checkpoint may follow."""
        self.held = []
        self._until, self._busy, self._watching, self._handle = 0.0, lambda: False, False, None
        self._lock = threading.Lock()

    def hold(self, message):
        """Delays a message. A second save of the same path begins a new checkpoint, so the delayed ones are sent
        first."""
        path = message.get("saved", message.get("first"))
        if any(path == each.get("saved", each.get("first")) for each in self.held):
            self._report_held()
        self.held.append(message)

    def let_go(self, message):
        """Drops a delayed message that another one replaces."""
        for index, each in enumerate(self.held):
            if each is message:
                del self.held[index]
                return

    def _report_held(self):
        """Sends the delayed messages; all get the begin of the first save of the checkpoint."""
        held, self.held = self.held, []
        for message in held:
            self.report(dict(message, began=min(each.get("began", 0.0) for each in held)))

    def as_one(self, already, is_whole):
        """Replaces the messages delayed after the first `already` by one for their common folder; drops them if the
        folder is not complete."""
        own, self.held[already:] = self.held[already:], []
        if own and is_whole:
            path = os.path.commonpath([os.path.dirname(each.get("saved", each.get("first"))) for each in own])
            one = {key: value for key, value in own[-1].items() if key != "first"}
            prints = [each for message in own for each in message.get("prints", ())]
            self.hold(dict(one, saved=path, prints=prints, began=min(each.get("began", 0.0) for each in own)))

    def wait(self, busy):
        """Called after a save. The group stays open while `busy()` is true, which means that another save is
        running."""
        with self._lock:
            self.waits, self._busy, self._until = True, busy, time.monotonic() + PAUSE
            self._watch_calls()
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="outrider-saves", daemon=True).start()

    def _watch_calls(self):
        module, main = sys.modules.get("torch.nn.modules.module"), threading.get_ident()
        if self._handle is None and module is not None:
            self._handle = module.register_module_forward_pre_hook(lambda *_: self._called(main))

    def _called(self, main):
        if threading.get_ident() == main:
            self.passed()

    def _watch(self):
        while True:
            with self._lock:
                if not self.waits:
                    self._watching = False
                    return
                pause = self._until - time.monotonic()
            if pause <= 0 and not self._busy():
                self.passed()
            else:
                time.sleep(max(pause, PAUSE / 5))

    def passed(self):
        """The script continues: closes the group."""
        with self._lock:
            if not self.waits:
                return
            self.waits, handle, self._handle = False, self._handle, None
        if handle is not None:
            handle.remove()
        self._report_held()
        self.over()
