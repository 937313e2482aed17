"""Shortens the recovery of a monitored session that has lost a parameter server, compared with TensorFlow 2.21.

TensorFlow recovers by itself: it closes the session and creates another one. Two of its waits are shortened.

- The close asks all servers to drop the session, the lost one too: for 10 s, or until another one serves at its
  address. It is waited for no longer than `CLOSE_WITHIN`; then a thread waits for it, and its memory is freed when it
  ends.
- A worker's session checks only twice a minute whether the chief has restored the lost state.

One case is left. Such a close also stops the input pipeline, under a lock that every session of the process needs
(`SessionMgr::DeleteSession`, down to `RootDataset::Iterator`), and the next session's `CreateSession` waits for that
lock. The pipeline waits for its tuning thread, which sleeps up to a minute at a time. It is woken a moment before it
can see that it is cancelled, and seems to sleep again if it checks in that moment. Nothing in this process helps then.
So if the close still waits although all servers listen again, the page reports it, and the process is restarted
(`master/core/ps/ps_failover.py`).
"""

import functools
import json
import os
import socket
import sys
import threading
import time

from ..abi import progress_page

LOOK_EVERY = 0.5
CLOSE_WITHIN = 1.0
"""Seconds to wait for a close. If all servers are alive it takes some milliseconds."""
PROBE_EVERY = 0.25
STUCK_AFTER = 1.5
"""Seconds for which all servers have listened. TensorFlow tries to connect once a second: an unblocked close was over
0.2 to 0.9 s after the last of them listened (17 measurements, load 5)."""


def look_sooner(current, module):
    """A worker's session waits until the chief has restored the state of a lost ps."""
    make = module.SessionManager.__init__

    @functools.wraps(make)
    def __init__(self, *args, **kwargs):
        make(self, *args, **kwargs)
        if current() is not None and getattr(self, "_recovery_wait_secs", 0) > LOOK_EVERY:
            self._recovery_wait_secs = LOOK_EVERY

    module.SessionManager.__init__ = __init__


def let_go(current, module):
    """Closes in the background if another session follows; a close at the end of the script waits as in TensorFlow."""
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
    raised, close = [], Close(worker)
    del raw.close

    def end():
        try:
            raw.close()
        except Exception as error:
            raised.append(error)
        finally:
            close.over.set()

    threading.Thread(target=end, name="outrider-close", daemon=True).start()
    if not close.over.wait(CLOSE_WITHIN):
        threading.Thread(target=close.watch, name="outrider-watch", daemon=True).start()
    if raised:
        raise raised[0]


class Close:
    """The close of a session while another one is created."""

    lock, newest = threading.Lock(), None

    def __init__(self, worker):
        self.worker, self.over, self.began = worker, threading.Event(), time.monotonic_ns()
        with Close.lock:
            Close.newest = self

    def watch(self):
        """Reports on the page whether the close blocks the process."""
        try:
            servers, since = _servers(), None
            while servers and not self.over.wait(PROBE_EVERY):
                if not _all_listen(servers):
                    since = None
                elif since is None:
                    since = time.monotonic()
                self._report(since is not None and time.monotonic() >= since + STUCK_AFTER)
            self._report(False)
        except Exception:  # the page is gone, or TF_CONFIG is the user's own: the master waits longer
            pass

    def _report(self, holds):
        """Reports for the newest close only, and only if no step was made since and it has not ended meanwhile."""
        with Close.lock:
            if Close.newest is self:
                words = self.worker.page.words
                holds = holds and words[progress_page.LAST] < self.began and not self.over.is_set()
                words[progress_page.STUCK] = int(holds)


def _servers():
    """The addresses of each server that a close asks; they are resolved once, since that may take long."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    places = [place.rpartition(":") for role in cluster.values() for place in role]
    found = [socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM) for host, _, port in places]
    return [[each[4][:2] for each in addresses] for addresses in found]


def _all_listen(servers):
    """Whether all servers listen. The one that does not is tried first the next time."""
    for server in servers:
        if not any(_listens(address) for address in server):
            servers.remove(server)
            servers.insert(0, server)
            return False
    return True


def _listens(address):
    try:
        socket.create_connection(address, PROBE_EVERY).close()
        return True
    except OSError:
        return False
