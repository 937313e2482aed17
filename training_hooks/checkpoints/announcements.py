"""Messages about the checkpoint path between the ranks of a generation, over the store of their process group.

Rank 0 announces a save before torch.save returns, so a rank that has joined any later collective finds the
announcement. No rank waits for another one. The store is kept from init_process_group on: scripts load the best
checkpoint after they have destroyed their group.
"""

from ..data import rank_consensus

SAVED, WRITTEN, FAILED = "saved", "written", "failed"
DECIDED = "decided"


class Announcements:
    def __init__(self, world, generation):
        self.world, self.place = world, "outrider/marked/%d/" % generation
        self.store = None

    def joined(self):
        """Called when a process group was created."""
        self.store = rank_consensus.store_of(self.world) or self.store

    def is_shared(self):
        if self.world > 1 and self.store is None:
            self.joined()
        return self.world == 1 or self.store is not None

    def announce(self, word, number):
        """Announces a save; returns whether the other ranks can read it now."""
        if self.world == 1:
            return True
        try:
            self.store.set(self.place + word, str(number))
            # `set` returns before the store has it; a request on the same connection is served after it
            return self.store.check([self.place + word])
        except Exception:  # there is no store, or its process has ended
            return False

    def announced(self, word):
        """The last announced number, or None if there is none or the store cannot be reached."""
        if self.world == 1 or not self.is_shared():
            return None
        try:
            return int(self.store.get(self.place + word)) if self.store.check([self.place + word]) else None
        except Exception:  # rank 0 has ended
            return None

    def first(self, mine):
        """The decision of the first rank that decides. Without a store each rank decides by itself, from the same
        facts."""
        if self.world == 1 or not self.is_shared():
            return mine
        try:
            return self.store.compare_set(self.place + DECIDED, "", mine).decode()
        except Exception:
            return mine
