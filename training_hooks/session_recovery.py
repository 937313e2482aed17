"""A monitored session whose parameter server was lost is back sooner than TensorFlow 2.21 would have it.

It recovers by itself: the session is closed, and another one is made. Two of its waits are cut short.

- The close asks all servers to forget the session, the one that is gone too: for 10 s, or until another one serves at
  its address. It is waited for no longer than `CLOSE_WITHIN`; then a thread waits for it, and its memory is free when
  it ends.
- A worker's session looks twice a minute whether the chief has restored what was lost.

What is left: such a close also takes down the input pipeline, under a lock that every session of the process needs
(`SessionMgr::DeleteSession`, down to `RootDataset::Iterator`), and the next one's `CreateSession` waits for that lock.
The pipeline waits for the thread that tunes it, which sleeps up to a minute at a time. It is woken a moment before it
can see that it is cancelled, and seems to sleep on where it looks in that moment. Nothing in this process helps then.
So where the close still waits though all parameter servers listen again, the page says `stuck`, and the process is
started again (`master/core/ps/lost_ps.py`).
"""

import functools
import json
import os
import socket
import sys
import threading
import time

LOOK_EVERY = 0.5
CLOSE_WITHIN = 1.0
"""Seconds. Where all servers are there it takes some milliseconds."""
PROBE_EVERY = 0.25
STUCK_AFTER = 1.5
"""Seconds in which all parameter servers have listened. TensorFlow tries to connect once a second."""


def look_sooner(current, module):
    """A worker's session waits until the chief has restored what a lost ps had."""
    make = module.SessionManager.__init__

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        if current() is not None and getattr(self, "_recovery_wait_secs", 0) > LOOK_EVERY:
            self._recovery_wait_secs = LOOK_EVERY

    module.SessionManager.__init__ = __init__


def let_go(current, module):
    """A close at the end of the script waits as ever: here another session is to be made."""
    recoverable, lost = module._RecoverableSession, module._PREEMPTION_ERRORS
    close = recoverable.close

    @functools.wraps(close)
    def closed(self):
        worker = current()
        if worker is not None and isinstance(sys.exc_info()[1], lost):
            raw = self
            while getattr(raw, "_sess", None) is not None:
                raw = raw._sess
            raw.close = functools.partial(_close, raw, worker)
        close(self)

    recoverable.close = closed


def _close(raw, worker):
    raised, over = [], threading.Event()
    del raw.close

    def end():
        try:
            raw.close()
        except Exception as error:
            raised.append(error)
        finally:
            over.set()

    threading.Thread(target=end, name="outrider-close", daemon=True).start()
    if not over.wait(CLOSE_WITHIN):
        threading.Thread(target=_watch, args=(worker, over), name="outrider-watch", daemon=True).start()
    if raised:
        raise raised[0]


def _watch(worker, over):
    try:
        if _outlasts(over, _servers()):
            worker.stuck(True)
            over.wait()
            worker.stuck(False)
    except Exception:  # the page is gone, or TF_CONFIG is the user's own: the master waits longer
        pass


def _servers():
    """(host, port) of all parameter servers."""
    addresses = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}).get("ps", [])
    return [(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)]


def _outlasts(over, servers):
    """Whether the close still waits though they have all listened for a while; returns when that is known."""
    since = None
    while servers and not over.wait(PROBE_EVERY):
        if not all(_listens(server) for server in servers):
            since = None
        elif since is None:
            since = time.monotonic()
        elif time.monotonic() >= since + STUCK_AFTER:
            return True
    return False


def _listens(server):
    try:
        socket.create_connection(server, PROBE_EVERY).close()
        return True
    except OSError:
        return False
