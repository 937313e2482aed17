"""Finds the ranks inside a command: Python processes below it that have written a progress page.

Under a launcher a rank may be the command itself or any process below it (a shell's Python, DeepSpeed's children). Its
page has its pid and generation, and identifies it.
"""

import os

from ..abi import progress_page, rank_files
from ..process import tree
from ..template import fork_worker


class Observed:
    def __init__(self, volume):
        self.folder = rank_files.page_folder(volume)

    def readings(self, generation, keep=()):
        """{local rank: page} of the processes below this one that belong to the generation; None: to any generation."""
        found = {}
        for name in self._names():
            reading = progress_page.read(os.path.join(self.folder, name))
            if reading is not None and generation in (None, reading.generation):
                found[int(name)] = reading
        below = set(tree.descendants(os.getpid(), keep)) if found else ()
        return {local_rank: reading for local_rank, reading in found.items() if reading.pid in below}

    def _names(self):
        try:
            return [name for name in os.listdir(self.folder) if name.isdigit()]
        except OSError:
            return []

    def split(self, readings, workers, global_ranks):
        """(ranks that can answer a question, processes of the command without a rank). `workers` is {pid: local rank}
        of the command's own processes."""
        shown = [fork_worker.Rank(each.pid, local, global_ranks.get(local, local)) for local, each in readings.items()]
        mute = []
        for pid, local_rank in workers.items():
            below = {pid, *tree.descendants(pid)}
            if not any(rank.pid in below for rank in shown):
                mute.append(fork_worker.Rank(pid, local_rank, global_ranks.get(local_rank, local_rank)))
        return shown, mute


def savers(readings, waited, save_grace):
    """The pids inside a save that a stop still waits for, `waited` seconds after the stop began."""
    saving = [each for each in readings.values() if each.phase == progress_page.CHECKPOINT]
    return {each.pid for each in saving if waited < each.patience(save_grace)}
