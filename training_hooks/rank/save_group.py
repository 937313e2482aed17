"""Saves that follow each other without a step between them are one checkpoint, finished with the last of them.

Scripts write their model to one file and their optimizer to another, and so do transformers and accelerate. Who was
stopped between the two (at the end of the first, the world may change) would leave a checkpoint that does not load, or
that is of two steps. So what was saved is told, and the page's phase left, when the script goes on: it asks for a
batch, calls a module, steps an optimizer or ends; or when no save has come for a while, since it may be waiting in a
barrier for ranks that are gone.
"""

import os
import sys
import threading
import time

PAUSE = 0.5


class Together:
    """`over()` is called once for saves that belong together; `tell(message)` with what was held back of each."""

    def __init__(self, tell, over):
        self.tell, self.over = tell, over
        self.waits = False
        """Saves are done, and more may come."""
        self.held = []
        self._until, self._busy, self._watching, self._handle = 0.0, lambda: False, False, None
        self._lock = threading.Lock()

    def hold(self, message):
        """Where the same path is saved again, what was held is of a checkpoint before it."""
        path = message.get("saved", message.get("first"))
        if any(path == each.get("saved", each.get("first")) for each in self.held):
            self._tell_held()
        self.held.append(message)

    def let_go(self, message):
        """It is told in other words."""
        for index, each in enumerate(self.held):
            if each is message:
                del self.held[index]
                return

    def _tell_held(self):
        """The checkpoint began with the first of them."""
        held, self.held = self.held, []
        for message in held:
            self.tell(dict(message, began=min(each.get("began", 0.0) for each in held)))

    def as_one(self, already, is_whole):
        """What was held behind the first `already` is told as one folder, or not at all where that is not whole."""
        own, self.held[already:] = self.held[already:], []
        if own and is_whole:
            path = os.path.commonpath([os.path.dirname(each.get("saved", each.get("first"))) for each in own])
            one = {key: value for key, value in own[-1].items() if key != "first"}
            prints = [each for message in own for each in message.get("prints", ())]
            self.hold(dict(one, saved=path, prints=prints, began=min(each.get("began", 0.0) for each in own)))

    def wait(self, busy):
        """A save is done. While `busy()` another one goes on."""
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
        """The script has gone on."""
        with self._lock:
            if not self.waits:
                return
            self.waits, handle, self._handle = False, self._handle, None
        if handle is not None:
            handle.remove()
        self._tell_held()
        self.over()
