"""Requests a save by a signal that the job names, if the script has its own handler for that signal.

Most signals end a process without a handler, so no process without one gets the signal. If one rank has no handler, no
other rank of the member gets it either: they would wait for that rank in a collective save.
"""

import signal

from . import tree


def send(name, ranks):
    """Sends the signal. `ranks`: pid by local rank. Returns "", or the reason why it was not sent."""
    number = getattr(signal, name, None)
    if number is None or not ranks:
        return "there is no signal %s on this system" % name if ranks else "no rank runs on this member"
    found = {local_rank: _handling(pid, number) for local_rank, pid in ranks.items()}
    deaf = ", ".join(str(local_rank) for local_rank in sorted(found) if not found[local_rank])
    if deaf:
        return "local rank %s has no handler for %s (yet)" % (deaf, name)
    for pids in found.values():
        for pid in pids:
            tree.send(pid, number)
    return ""


def _handling(pid, number):
    """The processes of a rank that handle the signal: the rank itself, or the nearest below a command such as a
    shell."""
    level = [pid]
    while level:
        found = [each for each in level if tree.catches(each, number)]
        if found:
            return found
        level = [child for each in level for child in tree.children(each)]
    return []
