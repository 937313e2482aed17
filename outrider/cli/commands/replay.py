"""`outrider replay BUNDLE`: steps the core through what a bundle has recorded, and shows each decision."""

from __future__ import annotations

import contextlib
import datetime
import gc
import re
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from outrider.cli.bundling import archive
from outrider.cli.errors import UserError
from outrider.cli.flags import Flag, parsing
from outrider.cli.text import plural
from outrider.master.core.actions import Action, SaveHistory, SaveStatus
from outrider.master.core.job_kinds import Job
from outrider.master.recording import reading
from outrider.master.recording.reading import Recording, WrongRecording
from outrider.master.recording.replay import Replayed, replayed
from outrider.runtime.journal import text

DIFFERENT = 1
"""Exit code if the core decides otherwise than recorded."""
MORE_MEMORY = 2 << 30
"""The most bytes that a replay may take: a bundle from anybody may ask the core for any number of members."""
CLOCK = re.compile(r"(?P<day>\d{4}-\d\d-\d\dT)?\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?\Z")


def _until(value: str) -> int | str:
    if re.fullmatch(r"\d{1,9}", value):
        return int(value)
    if CLOCK.match(value):
        with contextlib.suppress(ValueError):  # such as 25:00
            datetime.datetime.fromisoformat(value if "T" in value else f"2000-01-01T{value}")
            return value
    raise ValueError("must be a number of an event, or a time such as 14:03:20 or 2026-05-01T14:03:20Z")


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--until", cls=Flag, callback=parsing(_until), metavar="TIME|N",
              help="Stop after event N, or before the first event later than TIME.")  # fmt: skip
@click.option("--event", cls=Flag, type=click.IntRange(1), metavar="N",
              help="Show only event N, with the state before it.")  # fmt: skip
@click.option("--brief", is_flag=True, help="Leave out events after which nothing was decided.")
@click.option("--failed", is_flag=True, help="Replay the recording of a master whose core has failed.")
@click.option("--any-version", is_flag=True, help="Replay also the bundle of another version of Outrider.")
def replay(
    bundle: Path, until: int | str | None, event: int | None, brief: bool, failed: bool, any_version: bool
) -> None:
    """Step the master's core through the bundle BUNDLE, and show each event and what was decided.

    The core of this version decides again. The exit code is 1 if it decides otherwise than recorded.
    """
    head, members = archive.read(bundle)
    with _bounded_memory(bundle):
        recording = _recording(bundle, members, archive.FAILED if failed else archive.RECORDING, any_version)
        if event is not None and event > len(recording.steps):
            raise UserError(f"--event {event}: must be from 1 to {len(recording.steps)}")
        click.echo(f"# {_printable(str(head.get('job')))}, recorded by Outrider {_printable(recording.outrider)}: "
                   f"{plural(len(recording.steps), 'event')}")  # fmt: skip
        shown = _Shown(recording, until, event, brief)
        shown.all()
    if shown.different:
        raise SystemExit(DIFFERENT)


def _recording(path: Path, members: dict[str, bytes], name: str, any_version: bool) -> Recording:
    body = members.get(name)
    if body is None:
        raise UserError(f"{path} has no {name}: there is nothing to replay; "
                        "its manifest.json says under left_out why")  # fmt: skip
    try:
        return reading.read(body.splitlines(), any_version=any_version)
    except WrongRecording as wrong:
        raise UserError(f"{path} cannot be replayed: {wrong}") from None


@contextlib.contextmanager
def _bounded_memory(path: Path) -> Iterator[None]:
    """Looks at the memory ten times a second, and ends the replay while there is some left.

    CPython needs memory to leave a `with` or a `try`, and turns in a circle there if it gets none. So the limit of the
    system is twice as high: it ends what is allocated at once.
    """
    (size, resident), (soft, hard) = _sizes(), resource.getrlimit(resource.RLIMIT_AS)
    most = MORE_MEMORY if soft == resource.RLIM_INFINITY else min(MORE_MEMORY, (soft - size) // 2)

    def look(*_: object) -> None:
        is_over = _sizes()[1] - resident > most
        signal.setitimer(signal.ITIMER_REAL, 5 if is_over else 0.1)  # a destructor swallows what is raised in it
        if is_over:
            raise MemoryError

    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * most, hard))
    before = signal.signal(signal.SIGALRM, look)
    gc.disable()  # else it looks through what fills the memory again and again
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        yield
    except MemoryError:
        most_of = f"{most / (1 << 30):.3g} GiB of memory"
        raise UserError(f"{path} cannot be replayed: it takes more than {most_of}") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _sizes() -> tuple[int, int]:
    """The bytes of this process: all of them, and those in memory."""
    size, resident, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return size * resource.getpagesize(), resident * resource.getpagesize()


class _Shown:
    """The text of a replay."""

    def __init__(self, recording: Recording, until: int | str | None, event: int | None, brief: bool) -> None:
        self._recording, self._until, self._event, self._brief = recording, until, event, brief
        self.different = self._hidden = 0

    def all(self) -> None:
        state, steps, seen = self._recording.state, replayed(self._recording), 0
        for step in self._recording.steps:
            if self._is_beyond(step.number, step.at):
                break
            if step.number == self._event:
                click.echo(_printable(f"# state: {text(state)}"))
            found = next(steps)
            seen += 1
            self.different += found.differs
            if self._event in (None, step.number):
                self._show(found)
            if found.failure or step.number == self._event:
                break
        self._end(seen)

    def _is_beyond(self, number: int, at: float) -> bool:
        if isinstance(self._until, int):
            return number > self._until
        return self._until is not None and _clock_of(self._recording.state, at) > _moment(self._until, self._recording)

    def _show(self, found: Replayed) -> None:
        is_quiet = not (found.actions or found.failure or found.differs or found.before != found.after)
        if self._brief and is_quiet:
            self._hidden += 1
            return
        at = _time(self._recording.state, found.step.at)
        say: Callable[[str], None] = lambda line: click.echo(_printable(line))  # noqa: E731
        say(f"{found.step.number:>6} {at} > {text(found.step.event)}")
        if found.failure:
            say(f"       {at} ! the core fails here: {found.failure}")
        if found.before != found.after and not found.failure:
            say(f"       {at} = {found.before} -> {found.after}")
        for action in found.actions:
            say(f"       {at} < {text(_without_document(action))}")
        if found.differs:
            say(f"       {at} ! recorded instead: {_recorded(found.recorded)}")

    def _end(self, seen: int) -> None:
        if self._hidden:
            click.echo(f"# {plural(self._hidden, 'event')} without a decision left out")
        if self._recording.left_out and seen == len(self._recording.steps):
            click.echo(
                f"# the recording was too long: {plural(self._recording.left_out, 'entry', 'entries')} left out here"
            )
        if isinstance(self._until, str) and seen == len(self._recording.steps):
            begin = _time(self._recording.state, self._recording.since).strip()
            click.echo(f"# --until {self._until}: no event is later; the recording begins at {begin}")
        if self.different:
            click.echo(f"# after {self.different} of {plural(seen, 'event')} the core decides otherwise than recorded")
        else:
            click.echo(f"# {plural(seen, 'event')} replayed: the core of this version decides as recorded")


def _without_document(action: Action) -> Action:
    if isinstance(action, SaveHistory):
        return replace(action, part={})
    return replace(action, status={}) if isinstance(action, SaveStatus) else action


def _recorded(actions: list[object]) -> str:
    shown = []
    for action in actions:
        fields = dict(action) if isinstance(action, dict) else {"@": str(action)}
        name = str(fields.pop("@", "?")).rpartition(".")[2]
        shown.append(" ".join((name, *(f"{key}={value!r}" for key, value in fields.items()))))
    return "; ".join(shown) or "nothing"


def _clock_of(state: Job, at: float) -> float:
    return at + state.unix_offset


def _moment(until: str, recording: Recording) -> float:
    """The unix time of `--until`; a time without its day is the first one after the beginning."""
    begin = datetime.datetime.fromtimestamp(_clock_of(recording.state, recording.since)).astimezone()
    given = until if "T" in until else f"{begin:%Y-%m-%d}T{until}"
    found = datetime.datetime.fromisoformat(given)
    found = found if found.tzinfo else found.astimezone()
    if "T" not in until and found < begin.replace(microsecond=0):
        found += datetime.timedelta(days=1)
    return found.timestamp()


def _time(state: Job, at: float) -> str:
    """The time of day in the local time zone; before the core knows it, the seconds of the master's clock."""
    if not state.unix_offset:
        return f"{at:12.3f}"
    return datetime.datetime.fromtimestamp(_clock_of(state, at)).strftime("%H:%M:%S.%f")[:-3]


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)
