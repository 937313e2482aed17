"""What worker processes and the matcher say by datagram, passed on to the sidecar: finished saves, where the
data goes on, lines of the output that fit a pattern, and answers to its questions.
"""

from .collection import Collection

MATCHER = {"matched": "matched", "dropped": "pattern_dropped"}
"""What the matcher says, and what the sidecar is told of it."""

MOST_UNSAID = 100
"""Of those that wait for a sidecar."""


class Hearing:
    """`busy` while an answer is awaited: `tell` is then due every few milliseconds, because a stack's file and a page
    tell nobody when they are written."""

    def __init__(self, volume, channel, agent):
        self.volume, self.channel, self.agent = volume, channel, agent
        self.collections, self.unsaid = [], []

    @property
    def busy(self):
        return bool(self.collections)

    def ask(self, order, ranks, mute=()):
        """A `collect` order; `mute` are processes in which nothing is known to answer."""
        self.collections.append(Collection(self.volume, self.channel, order, ranks, mute))

    def tell(self, generation):
        """Passes on all that has come; saves of another generation are nobody's any more."""
        message = self.channel.hear()
        while message is not None:
            if "saved" in message and message.get("generation") == generation:
                event = {"event": "saved", "path": message["saved"]}
                event.update((key, message.get(key)) for key in ("generation", "local_rank", "step"))
                self.agent.send(event)
            if "data" in message and message.get("generation") == generation:
                self.agent.send(dict(message, event="data", word=message.pop("data")))
            for word, event in MATCHER.items():
                if word in message:
                    pattern = message.pop(word)
                    self.unsaid.append(dict(message, event=event, pattern=pattern))
            for collection in self.collections:
                collection.hear(message)
            message = self.channel.hear()
        while self.unsaid and self.agent.send(self.unsaid[0]):
            del self.unsaid[0]
        del self.unsaid[:-MOST_UNSAID]
        for collection in list(self.collections):
            body = collection.poll()
            if body is not None:
                self.collections.remove(collection)
                self.agent.send({"event": "collected", "order": collection.order, "body": body})
