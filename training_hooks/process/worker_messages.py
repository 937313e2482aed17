"""What worker processes and the matcher say by datagram, passed on to the sidecar. They tell of finished saves, where
the data goes on, that a script can save its state when it is asked to, copies of states in memory, lines of the output
that fit a pattern, and answers to its questions."""

import time

from . import save_signal

MATCHER = {"matched": "matched", "dropped": "pattern_dropped"}
"""What the matcher says, and what the sidecar is told of it."""

MOST_UNSAID = 100
"""Of those that wait for a sidecar."""


class Hearing:
    """`busy` while an answer is awaited: `tell` is then due every few milliseconds, because a stack's file and a page
    tell nobody when they are written."""

    def __init__(self, channel, agent):
        self.channel, self.agent = channel, agent
        self.collections, self.unsaid = [], []
        self.offer, self.remembered = None, {}
        self.signalled, self.signalled_at = (None, "", None), 0.0
        """The last order that named a signal, why it was not sent, its generation, and when it was."""

    @property
    def busy(self):
        return bool(self.collections)

    def collect(self, collection):
        """The question of a `collect` order (`telemetry.diagnostics.Collection`), until its body is complete."""
        self.collections.append(collection)

    def lines(self, generation):
        """What is said again on each new connection: who can save the state of the running generation, and the newest
        copies in memory."""
        said = [self.offer] if self.offer is not None else []
        return [line for line in said + list(self.remembered.values()) if line["generation"] == generation]

    def save(self, order, ranks):
        """A `save_state` order, for the rank that offered it; one that names a signal is for all of `ranks` (pid by
        local rank), who are sent it once, however often the order comes."""
        if order.get("signal"):
            if order.get("order") != self.signalled[0]:
                self.signalled_at = time.monotonic()
                error = save_signal.send(order["signal"], ranks)
                self.signalled = (order.get("order"), error, order.get("generation"))
            self._pass_on(dict(order, state_saved=order.get("order"), error=self.signalled[1]))
            self._say()  # and those that it asks for behind it
            return
        wanted = {"save": order.get("order"), "seconds": order.get("seconds"), "last": order.get("last")}
        offer = self.offer if self.offer and self.offer["generation"] == order.get("generation") else None
        if not offer or not self.channel.tell(str(offer["local_rank"]), wanted):
            error = "no rank here offers to save its state, or it does not listen"
            self._pass_on(dict(order, state_saved=order.get("order"), error=error))

    def _pass_on(self, message):
        """What must not be lost with a connection."""
        if "offers" in message:
            self.offer = dict(_only(message, "generation", "local_rank"), event="offers", names=message["offers"])
            self.agent.send(self.offer)
        elif "remembered" in message:
            about = _only(
                message, "generation", "local_rank", "rank", "world", "length", "sharded", "marked", "counted"
            )
            self.remembered[about["local_rank"]] = dict(about, event="remembered", step=message["remembered"])
            self.agent.send(self.remembered[about["local_rank"]])
        elif "state_saved" in message:
            about = _only(message, "generation", "step", "path", "seconds", "error")
            self.unsaid.append(dict(about, event="state_saved", order=message["state_saved"]))

    def tell(self, generation):
        """Passes on all that has come; saves of another generation are nobody's any more."""
        message = self.channel.hear()
        while message is not None:
            asked = self._asked(message, generation)
            if ("saved" in message or "first" in message) and message.get("generation") == generation:
                event = {"event": "saved", "path": message.get("saved", message.get("first")), "asked": asked}
                event["first"] = "saved" not in message and not asked
                event.update((key, message.get(key)) for key in ("generation", "local_rank", "step"))
                event["prints"] = message.get("prints", [])
                self.agent.send(event)
            if "data" in message and message.get("generation") == generation:
                self.agent.send(dict(message, event="data", word=message.pop("data")))
            for word, event in MATCHER.items():
                if word in message:
                    pattern = message.pop(word)
                    self.unsaid.append(dict(message, event=event, pattern=pattern))
            if message.get("generation") == generation:
                self._pass_on(message)
            for collection in self.collections:
                collection.hear(message)
            message = self.channel.hear()
        self._say()
        for collection in list(self.collections):
            body = collection.poll()
            if body is not None:
                self.collections.remove(collection)
                self.agent.send({"event": "collected", "order": collection.order, "body": body})

    def _asked(self, message, generation):
        """The order whose signal came before this save began; 0: nobody has asked for it."""
        was_sent = self.signalled[1:] == ("", generation)
        return self.signalled[0] if was_sent and message.get("began", 0.0) >= self.signalled_at else 0

    def _say(self):
        while self.unsaid and self.agent.send(self.unsaid[0]):
            del self.unsaid[0]
        del self.unsaid[:-MOST_UNSAID]


def _only(message, *names):
    return {name: message[name] for name in names if name in message}
