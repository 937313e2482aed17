"""The master's end of its sidecars' connections: authenticates them, and turns their messages into events.

A connection is unauthenticated until a Hello over it has been admitted by the door. Then it is that member's session,
and each message becomes an event of the job that the Hello named. No message of an unauthenticated connection reaches
the core. A refusal is sent to the other side as one sentence, counted, and logged once per connection, so that a flood
is one line and affects no other connection. While a Hello is undecided, further ones of the same connection are
dropped, except that a repeat with the same credentials replaces it.

A connection whose session the core has closed may send Hello again, for a new session; session names are not reused. An
unreadable message of an authenticated member comes from a newer version, and is ignored.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Protocol

import zmq

from outrider.master.core.events import Event, SidecarDisconnected, SidecarSaid
from outrider.runtime.curve_keys import KeyPair
from outrider.runtime.rate_limit import RateLimit
from outrider.runtime.router import Limits, Router
from outrider.runtime.sockets import Unreachable
from outrider.wire.codec import BadMessage, decode_from_sidecar, encode, name_at
from outrider.wire.ids import JobName, MemberId
from outrider.wire.messages.directions import FromMaster, FromSidecar
from outrider.wire.messages.membership import Hello, Refused, Welcome

RETRY_AFTER = 2.0
SERVED_AGAIN = "the master serves this job again: send Hello"
NAMELESS = "this connection has not sent Hello yet"
CAN_BE_MISSED = frozenset(
    {"", "Report", "Saved", "DataSaid", "LineMatched", "PatternDropped", "Remembered", "Probed", "Ping", "Pong"}
)
"""Messages that may be dropped: the next one replaces them, or they only inform; empty: not a message of ours."""
MESSAGES, MESSAGES_A_SECOND = 1000, 100
"""Most messages of a member in a burst and per second. One report a second is usual; a script that saves in each of 50
steps a second sends 50."""
BYTES, BYTES_A_SECOND = 4 << 20, 256 << 10
OF_STRANGER = (20, 2, 256 << 10, 64 << 10, 64 << 10)
"""Rate limit of an unauthenticated connection, which only sends Hello: with the longest token, less than half of it."""
TOO_MUCH = "this member has sent too much in a short time; it is served again in {:.0f} s"
HEARD_AGAIN = 15.0
"""Seconds after which both buckets of the rate limit are positive again."""
ALLOWANCES_KEPT = 1000
"""Number of disconnected members' rate limits, beyond which those that are full again are dropped."""
SESSIONS_WITH_COMPLAINTS = 1000
"""Most connections that are remembered as logged; beyond that the oldest may be logged again."""

log = logging.getLogger("sidecars")

OnRefused = Callable[[MemberId | None, str], None]
"""Called with the connection's member (None: unauthenticated) and the reason, which may contain an intruder's text."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """An authenticated member: the receiver of its events, and the ticket for each Welcome, by which it authenticates
    again."""

    put: Callable[[Event], None]
    ticket: Callable[[], str] = str


class ForGood(str):
    """The reason why a Hello is refused for good, so that its member ends."""

    __slots__ = ()


class HandsOff(str):
    """The reason why no master serves a job's members for now; they leave their worker processes running."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Denied:
    """A refusal for now: `reason` is sent to the other side, `detail` is only logged, `kind` is the counter's label."""

    reason: str
    kind: str
    detail: str = ""
    retry_after: float = RETRY_AFTER


Verdict = Admitted | Denied | ForGood | HandsOff
Decide = Callable[[Verdict], None]
"""Called with the verdict on a Hello."""


@dataclass(slots=True, eq=False)
class Connection:
    """What a door remembers of one connection."""

    address: str
    is_gone: bool = False
    refused_tokens: int = 0
    asks_at: float = 0.0
    """When its next token may be reviewed, by the loop's clock."""
    proved: tuple[str, str, str] = ("", "", "")
    """Job, uid and token of the last Hello whose token was accepted, valid until `proved_until`."""
    proved_until: float = 0.0


class Door(Protocol):
    """Authenticates members."""

    def admit(self, hello: Hello, decide: Decide, of: Connection) -> None:
        """Calls `decide` once, now or later."""


class TokenDoor:
    """The door of one job whose members all have its random token (`outrider run`)."""

    def __init__(self, job: JobName, token: str, put: Callable[[Event], None]) -> None:
        self._job, self._token, self._put = job, token, put

    def admit(self, hello: Hello, decide: Decide, of: Connection) -> None:
        if hello.job != self._job:
            decide(Denied(f"this is the master of job {self._job!r}, not of {hello.job[:80]!r}", "job"))
        elif not hmac.compare_digest(hello.token.encode("utf-8", "surrogatepass"), self._token.encode()):
            why = f"the token of {hello.member[:80]!r} is not that of this run of job {self._job!r}"
            decide(Denied(why, "token"))
        else:
            decide(Admitted(self._put))


class Sidecars:
    """All connections of sidecars, over one ROUTER socket."""

    def __init__(self, keys: KeyPair, door: Door, on_refused: OnRefused) -> None:
        self._door = door
        self._on_refused = on_refused
        self.refused: Counter[str] = Counter()
        """Number of refused Hellos (and messages in their place), by reason."""
        self._undecided: dict[str, Hello] = {}
        """Hellos that are not decided yet, one for each connection."""
        self._others: dict[str, Connection] = {}
        self._admitted: dict[str, Admitted] = {}
        self._sessions: dict[str, str] = {}
        self._connections: dict[str, str] = {}
        self._members: dict[str, MemberId] = {}
        self._names: dict[str, tuple[JobName, MemberId]] = {}
        self._newest: dict[tuple[JobName, MemberId], int] = {}
        self._closed: set[str] = set()
        self._away: dict[str, JobName] = {}
        """Connections of members that leave their worker processes running without a master (`HandsOff`)."""
        self._reminded: set[str] = set()
        self._complained: dict[str, None] = {}
        self._counter = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._allowances: dict[tuple[JobName, MemberId], RateLimit] = {}
        """Rate limits by member, which persist over reconnections."""
        limits = Limits(lambda: RateLimit(*OF_STRANGER), _can_be_missed, self._cut)
        self._router = Router(self._context, keys, self._heard, self._ended, limits)

    def bind(self, endpoint: str) -> str:
        """Binds the socket and returns the actual endpoint. Raises zmq.ZMQError if that fails."""
        return self._router.bind(endpoint)

    def drain(self) -> int:
        return self._router.drain()

    def send(self, session: str, message: FromMaster) -> None:
        """Sends a message. Raises Unreachable if the session is closed or its connection accepts no more."""
        connection = self._connections.get(session)
        if connection is None:
            raise Unreachable(f"session {session} is closed")
        if isinstance(message, Welcome):
            message = replace(message, ticket=self._admitted[connection].ticket())
        self._router.send(connection, encode(message))

    def close_session(self, session: str) -> None:
        """Closes the session; further messages of its connection are ignored until the next Hello."""
        connection = self._connections.pop(session, None)
        if connection is not None:
            del self._sessions[connection], self._members[connection], self._admitted[connection]
            self._closed.add(connection)
            self._give_up_name(connection)

    def turn_away(self, job: JobName, reason: HandsOff) -> None:
        """Stops serving the members of this job until `invite`, and sends each the reason."""
        for connection, (of, _member) in list(self._names.items()):
            if of == job and connection in self._sessions:
                self.close_session(self._sessions[connection])
                self._leave_alone(connection, job, reason)

    def invite(self, job: JobName) -> None:
        """Asks the members of this job to send Hello again at once."""
        for connection in [connection for connection, of in self._away.items() if of == job]:
            del self._away[connection]
            self._answer(connection, Refused(SERVED_AGAIN, 0.0))

    def _leave_alone(self, connection: str, job: JobName, reason: HandsOff) -> None:
        self._away[connection] = job
        self._answer(connection, Refused(reason, RETRY_AFTER, hands_off=True))

    def close(self) -> None:
        """Closes the socket, after up to 0.5 s for the last messages to be sent."""
        self._router.close(linger_milliseconds=500)
        self._context.term()

    # -- what arrives -----------------------------------------------------------------------------------------------
    def _heard(self, connection: str, payload: bytes) -> None:
        try:
            message = decode_from_sidecar(payload)
        except BadMessage as error:
            self._pass_over(connection, str(error))
            return
        if isinstance(message, Hello):
            self._hello(connection, message)
        elif connection in self._sessions:
            self._admitted[connection].put(SidecarSaid(self._sessions[connection], message))
        elif connection not in self._closed and connection not in self._undecided:
            self._remind(connection, message)

    def _hello(self, connection: str, hello: Hello) -> None:
        known, undecided = self._members.get(connection), self._undecided.get(connection)
        if known is not None and known != hello.member:
            reason = f"this connection belongs to {known}, but its Hello names {hello.member[:80]!r}"
            self._refuse(connection, known, Denied(reason, "member"))
        elif undecided is None:
            self._undecided[connection] = hello
            if (other := self._others.get(connection)) is None:
                other = self._others[connection] = Connection(self._router.address_of(connection))
            self._door.admit(hello, lambda verdict: self._decided(connection, verdict), other)
        elif _credentials(undecided) == _credentials(hello):
            self._undecided[connection] = hello
        else:
            self.refused["early"] += 1

    def _decided(self, connection: str, verdict: Verdict) -> None:
        hello = self._undecided.pop(connection, None)
        if hello is None:
            return  # the connection has closed meanwhile
        if isinstance(verdict, HandsOff):
            self._leave_alone(connection, hello.job, verdict)
        elif isinstance(verdict, ForGood):
            self._refuse(connection, None, Denied(verdict, "job", retry_after=-1.0))
        elif isinstance(verdict, Denied):
            self._refuse(connection, None, verdict)
        else:
            self._bind_session(connection, hello, verdict)

    def _bind_session(self, connection: str, hello: Hello, admitted: Admitted) -> None:
        """Makes the connection the member's session, unless the member has opened a newer connection since."""
        name = (hello.job, hello.member)
        if int(connection) < self._newest.get(name, 0):
            self._closed.add(connection)
            return
        allowance = self._allowance(name)
        if connection not in self._sessions and allowance.is_spent(monotonic()):
            self._refuse(connection, hello.member, Denied(TOO_MUCH.format(HEARD_AGAIN), "flood", "", HEARD_AGAIN))
            return
        self._router.admit(connection, allowance)
        self._names[connection], self._newest[name] = name, int(connection)
        self._admitted[connection] = admitted
        self._away.pop(connection, None)
        session = self._sessions.get(connection)
        if session is None:
            self._counter += 1
            session = f"{connection}.{self._counter}"
            self._sessions[connection], self._connections[session] = session, connection
            self._members[connection] = hello.member
            self._closed.discard(connection)
        admitted.put(SidecarSaid(session, hello))

    def _allowance(self, name: tuple[JobName, MemberId]) -> RateLimit:
        found = self._allowances.get(name)
        if found is None:
            if len(self._allowances) >= 2 * len(self._names) + ALLOWANCES_KEPT:
                now = monotonic()
                self._allowances = {who: each for who, each in self._allowances.items() if not each.is_full(now)}
            found = self._allowances[name] = RateLimit(MESSAGES, MESSAGES_A_SECOND, BYTES, BYTES_A_SECOND)
        return found

    def _cut(self, connection: str) -> None:
        self.refused["flood"] += 1
        member = self._members.get(connection)
        job = self._names[connection][0] if connection in self._names else "a job that is over"
        if member is None:
            who = f"an unauthenticated client at {self._router.address_of(connection)}"
            self._complain(connection, None, f"a connection was closed: {who} has sent too much in a short time")
        else:  # logged each time, as the member can reconnect only after a while
            self._on_refused(member, f"a connection was closed: {member} of {job} has sent too much in a short time")

    def _give_up_name(self, connection: str) -> None:
        name = self._names.pop(connection, None)
        if name is not None and self._newest.get(name) == int(connection):
            del self._newest[name]

    def _ended(self, connection: str) -> None:
        self._away.pop(connection, None)
        self._give_up_name(connection)
        self._closed.discard(connection)
        self._reminded.discard(connection)
        self._complained.pop(connection, None)
        self._members.pop(connection, None)
        self._undecided.pop(connection, None)
        if (other := self._others.pop(connection, None)) is not None:
            other.is_gone = True
        session, admitted = self._sessions.pop(connection, None), self._admitted.pop(connection, None)
        if session is not None and admitted is not None:
            del self._connections[session]
            admitted.put(SidecarDisconnected(session))

    def _remind(self, connection: str, message: FromSidecar) -> None:
        """Requests a Hello once from a connection that sends another message first.

        That is not an error: messages in flight when a link broke may arrive over the next one before its Hello.
        """
        if connection in self._reminded:
            return
        self._reminded.add(connection)
        log.info("connection %s: %s arrived before Hello", connection, type(message).__name__)
        self._answer(connection, Refused(NAMELESS, 0.0))

    # -- what is refused --------------------------------------------------------------------------------------------
    def _pass_over(self, connection: str, complaint: str) -> None:
        if connection in self._sessions:
            self._complain(connection, self._members[connection], f"a message was ignored: {complaint}")
        elif connection not in self._closed:
            self._refuse(connection, None, Denied(complaint, "unreadable"))

    def _refuse(self, connection: str, member: MemberId | None, denied: Denied) -> None:
        self.refused[denied.kind] += 1
        detail = f": {denied.detail}" if denied.detail else ""
        self._complain(connection, member, f"a connection was refused: {denied.reason}{detail}")
        self._answer(connection, Refused(denied.reason, denied.retry_after))

    def _answer(self, connection: str, refusal: Refused) -> None:
        try:
            self._router.send(connection, encode(refusal))
        except Unreachable as error:
            log.info("sending a refusal failed: %s", error)

    def _complain(self, connection: str, member: MemberId | None, reason: str) -> None:
        if connection in self._complained:
            return
        if len(self._complained) >= SESSIONS_WITH_COMPLAINTS:
            del self._complained[next(iter(self._complained))]
        self._complained[connection] = None
        self._on_refused(member, reason)


def _can_be_missed(beginning: bytes) -> bool:
    return name_at(beginning) in CAN_BE_MISSED


def _credentials(hello: Hello) -> tuple[str, ...]:
    """The fields of a Hello by which a door decides."""
    return hello.job, hello.member, hello.uid, hello.token, hello.ticket
