"""Announces this master to earlier leaders, so that they end.

A leader that is cut off only from the API server cannot read that in the Lease, and keeps its members
(`outrider.master.core.membership.past_lease`). The announcement is a Hello for no job with a ticket, as only masters
have the key of the tickets. It is repeated with each new connection while this master leads. A replica that does not
lead does not listen at that port.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

import zmq

from outrider.master.core.k8s.values import session_ticket
from outrider.master.core.k8s.values.names import Document
from outrider.runtime.dealer import Dealer
from outrider.runtime.sockets import Unreachable
from outrider.wire.codec import encode
from outrider.wire.ids import JobName, MemberId, PodUid, Role
from outrider.wire.messages.membership import Hello

OF_MASTERS = JobName("")
"""Job name in such a Hello; names of real jobs contain a namespace."""

log = logging.getLogger("predecessors")


def greeting(key: bytes, me: str, term: int, now: float) -> Hello:
    """The Hello by which a master announces itself to an earlier one."""
    who = (OF_MASTERS, MemberId(me), PodUid(me), Role("master"), None, "")
    return Hello(*who, term=term, ticket=session_ticket.issue(key, Hello(*who), now))


@contextlib.contextmanager
def notified(endpoints: list[str], server_key: str, key: bytes, me: str, term: int) -> Iterator[None]:
    """Announces this master to these endpoints for as long as the context is entered."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    dealers = [_notifier(context, endpoint, server_key, key, me, term) for endpoint in endpoints]
    try:
        yield
    finally:
        for dealer in dealers:
            dealer.close()
        context.term()


def _notifier(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, server_key: str, key: bytes, me: str, term: int
) -> Dealer:
    def announce() -> None:
        log.warning("another replica serves sidecars at %s: announcing term %d to it, so that it ends", endpoint, term)
        with contextlib.suppress(Unreachable):
            dealer.send(encode(greeting(key, me, term, time.time())))

    dealer = Dealer(context, server_key, lambda _answer: None, announce, lambda: None)
    dealer.connect(endpoint)
    return dealer


def endpoints(pods: list[Document], me: str, port: int) -> list[str]:
    """The endpoints at which the other replicas serve sidecars, if they lead."""
    others = [pod for pod in pods if pod["metadata"]["name"] != me]
    addresses = [(pod.get("status") or {}).get("podIP") for pod in others]
    return [f"tcp://{f'[{at}]' if ':' in at else at}:{port}" for at in addresses if at]
