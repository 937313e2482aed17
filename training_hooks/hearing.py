"""What worker processes say by datagram, passed on to the sidecar: finished saves, and answers to its questions."""

from .collection import Collection


class Hearing:
    """`busy` while an answer is awaited: `tell` is then due every few milliseconds, because a stack's file and a page
    tell nobody when they are written."""

    def __init__(self, volume, channel, agent):
        self.volume, self.channel, self.agent = volume, channel, agent
        self.collections = []

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
            for collection in self.collections:
                collection.hear(message)
            message = self.channel.hear()
        for collection in list(self.collections):
            body = collection.poll()
            if body is not None:
                self.collections.remove(collection)
                self.agent.send({"event": "collected", "order": collection.order, "body": body})
