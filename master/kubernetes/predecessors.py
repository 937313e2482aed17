"""Tells earlier leaders that there is a newer one. A leader that is cut off from the API server alone cannot read it in
the Lease, and keeps its members on their links (`outrider.master.core.membership.past_lease`).

It comes as a Hello of no job, with a ticket: the key of the tickets is known to masters alone. It is said again with
each new link for as long as this one leads. A replica that does not lead hears nothing at that port, and need not.
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
"""Jobs of the cluster have a namespace in their names."""

log = logging.getLogger("predecessors")


def greeting(key: bytes, me: str, term: int, now: float) -> Hello:
    """What a master says to an earlier one."""
    who = (OF_MASTERS, MemberId(me), PodUid(me), Role("master"), None, "")
    return Hello(*who, term=term, ticket=session_ticket.issue(key, Hello(*who), now))


@contextlib.contextmanager
def told(endpoints: list[str], server_key: str, key: bytes, me: str, term: int) -> Iterator[None]:
    """For as long as this is entered."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    dealers = [_telling(context, endpoint, server_key, key, me, term) for endpoint in endpoints]
    try:
        yield
    finally:
        for dealer in dealers:
            dealer.close()
        context.term()


def _telling(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, server_key: str, key: bytes, me: str, term: int
) -> Dealer:
    def say() -> None:
        log.warning("another replica serves sidecars at %s: it is told that the term is %d", endpoint, term)
        with contextlib.suppress(Unreachable):
            dealer.send(encode(greeting(key, me, term, time.time())))

    dealer = Dealer(context, server_key, lambda _answer: None, say, lambda: None)
    dealer.connect(endpoint)
    return dealer


def endpoints(pods: list[Document], me: str, port: int) -> list[str]:
    """Where the other replicas serve sidecars, if they do."""
    others = [pod for pod in pods if pod["metadata"]["name"] != me]
    addresses = [(pod.get("status") or {}).get("podIP") for pod in others]
    return [f"tcp://{f'[{at}]' if ':' in at else at}:{port}" for at in addresses if at]
