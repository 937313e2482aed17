"""A script that has a handler of its own for a signal is asked to save by it. The job names the signal.

Without a handler most signals end a process, so nobody is sent one that he does not handle; and where one rank does
not, no other beside it is asked, because they would wait for it in whatever they save together.
"""

import signal

from . import tree


def send(name, ranks):
    """`ranks`: pid by local rank. Why it was not sent; "" where it was."""
    number = getattr(signal, name, None)
    if number is None or not ranks:
        return "there is no %s here" % name if ranks else "no rank runs here"
    found = {local_rank: _handling(pid, number) for local_rank, pid in ranks.items()}
    deaf = ", ".join(str(local_rank) for local_rank in sorted(found) if not found[local_rank])
    if deaf:
        return "local rank %s has no handler for %s (yet)" % (deaf, name)
    for pids in found.values():
        for pid in pids:
            tree.send(pid, number)
    return ""


def _handling(pid, number):
    """The rank itself; of a command that starts the script (a shell), those nearest below it."""
    level = [pid]
    while level:
        found = [each for each in level if tree.catches(each, number)]
        if found:
            return found
        level = [child for each in level for child in tree.children(each)]
    return []
