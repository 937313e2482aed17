"""Passes the datagrams of worker processes and of the matcher on to the sidecar.

They report finished saves, data positions, that a script can save its state on request, copies of states in memory,
output lines that match a pattern, and answers to the sidecar's questions.
"""

import time

from . import save_signal

MATCHER = {"matched": "matched", "dropped": "pattern_dropped"}
"""Event of the sidecar's protocol for each message of the matcher."""

MOST_QUEUED = 100
"""Most messages that wait for a sidecar."""


class Hearing:
    """`busy` while an answer is awaited: `forward` is then due every few milliseconds, because no event reports that a
    stack file or a page was written."""

    def __init__(self, channel, agent):
        self.channel, self.agent = channel, agent
        self.collections, self.queued = [], []
        self.offer, self.remembered = None, {}
        self.signalled, self.signalled_at = (None, "", None), 0.0
        """The last order that named a signal: (order, why it was not sent, its generation, when it was sent)."""

    @property
    def busy(self):
        return bool(self.collections)

    def collect(self, collection):
        """Starts a question from a `collect` order (`telemetry.diagnostics.Collection`), until its body is complete."""
        self.collections.append(collection)

    def lines(self, generation):
        """The messages repeated on each new connection: which rank can save its state, and the newest copies in
        memory."""
        messages = [self.offer] if self.offer is not None else []
        return [line for line in messages + list(self.remembered.values()) if line["generation"] == generation]

    def save(self, order, ranks):
        """Serves a `save_state` order: passes it to the rank that registered a state. An order that names a signal goes
        to all of `ranks` (pid by local rank), once, however often the order comes."""
        if order.get("signal"):
            if order.get("order") != self.signalled[0]:
                self.signalled_at = time.monotonic()
                error = save_signal.send(order["signal"], ranks)
                self.signalled = (order.get("order"), error, order.get("generation"))
            self._pass_on(dict(order, state_saved=order.get("order"), error=self.signalled[1]))
            self._flush()  # the saves that this order requests come after these
            return
        request = {"save": order.get("order"), "seconds": order.get("seconds"), "last": order.get("last")}
        offer = self.offer if self.offer and self.offer["generation"] == order.get("generation") else None
        if not offer or not self.channel.send(str(offer["local_rank"]), request):
            error = "no rank of this member can save its state, or the rank does not respond"
            self._pass_on(dict(order, state_saved=order.get("order"), error=error))

    def _pass_on(self, message):
        """Queues what must survive a lost connection."""
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
            self.queued.append(dict(about, event="state_saved", order=message["state_saved"]))

    def forward(self, generation):
        """Passes on all received messages; saves of another generation are dropped."""
        message = self.channel.hear()
        while message is not None:
            requested = self._requested_by(message, generation)
            if ("saved" in message or "first" in message) and message.get("generation") == generation:
                event = {"event": "saved", "path": message.get("saved", message.get("first")), "asked": requested}
                event["first"] = "saved" not in message and not requested
                event.update((key, message.get(key)) for key in ("generation", "local_rank", "step"))
                event["prints"] = message.get("prints", [])
                self.agent.send(event)
            if "data" in message and message.get("generation") == generation:
                self.agent.send(dict(message, event="data", word=message.pop("data")))
            for word, event in MATCHER.items():
                if word in message:
                    pattern = message.pop(word)
                    self.queued.append(dict(message, event=event, pattern=pattern))
            if message.get("generation") == generation:
                self._pass_on(message)
            for collection in self.collections:
                collection.hear(message)
            message = self.channel.hear()
        self._flush()
        for collection in list(self.collections):
            body = collection.poll()
            if body is not None:
                self.collections.remove(collection)
                self.agent.send({"event": "collected", "order": collection.order, "body": body})

    def _requested_by(self, message, generation):
        """The order whose signal came before this save began, or 0 if none requested it."""
        was_sent = self.signalled[1:] == ("", generation)
        return self.signalled[0] if was_sent and message.get("began", 0.0) >= self.signalled_at else 0

    def _flush(self):
        while self.queued and self.agent.send(self.queued[0]):
            del self.queued[0]
        del self.queued[:-MOST_QUEUED]


def _only(message, *names):
    return {name: message[name] for name in names if name in message}
