"""What the ranks of a generation tell each other of the marked path, over the store of their process group.

Rank 0 says which save it has made before torch.save returns, so whoever hears of that save by any collective behind it
finds the word there. No rank waits for another one. The store is kept from init_process_group on: scripts load what
was best after they have destroyed their group.
"""

from ..data import rank_consensus

SAVED, WRITTEN, FAILED = "saved", "written", "failed"
DECIDED = "decided"


class Word:
    def __init__(self, world, generation):
        self.world, self.place = world, "outrider/marked/%d/" % generation
        self.store = None

    def joined(self):
        """A process group was made."""
        self.store = rank_consensus.store_of(self.world) or self.store

    def is_heard(self):
        if self.world > 1 and self.store is None:
            self.joined()
        return self.world == 1 or self.store is not None

    def say(self, word, number):
        """Whether the others can know it now."""
        if self.world == 1:
            return True
        try:
            self.store.set(self.place + word, str(number))
            # `set` does not wait for the store: what is asked on the same connection is answered behind it
            return self.store.check([self.place + word])
        except Exception:  # no store, or nobody serves it any more
            return False

    def heard(self, word):
        """The number said last, None where none was, or nobody can be asked any more."""
        if self.world == 1 or not self.is_heard():
            return None
        try:
            return int(self.store.get(self.place + word)) if self.store.check([self.place + word]) else None
        except Exception:  # rank 0 has ended
            return None

    def first(self, mine):
        """What the first rank that decides has decided. Without a store each decides by itself, from the same facts."""
        if self.world == 1 or not self.is_heard():
            return mine
        try:
            return self.store.compare_set(self.place + DECIDED, "", mine).decode()
        except Exception:
            return mine
