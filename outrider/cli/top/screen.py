"""Draws the pages of `outrider top` as lines of a terminal. Pure, and only the rows that fit are made.

Names and messages come from jobs, which are not trusted: `printable` takes every character from them that a terminal
would obey, and rich's markup is never read, because all of it is `Text`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from outrider.cli.text import STYLES, event_line, event_style, local_time, percent, plural, printable, seconds, sentence
from outrider.cli.top.feed import Seen
from outrider.cli.top.sources import Document
from outrider.cli.top.view import EVENTS, HELP, JOB, JOBS, KEYS, MEMBER, STACKS, View, chosen

OLD_SECONDS = 5.0
"""Age of the data from which on it is shown."""
TAIL = 3
"""Faults and events below the members."""
CAUSES = 4
"""Causes of lost time that are named."""
MESSAGE_LINES = 3
MOST_ROWS = 1 << 30
TEXT_FOOT = "q back  ? help  ↑ ↓ scroll  s stacks  e events"
FOOT = {JOBS: "q quit  ? help  Enter open", HELP: "q back", **dict.fromkeys((MEMBER, STACKS, EVENTS), TEXT_FOOT)}
JOB_FOOT = "? help  Enter details  o order  s stacks  e events"


# -- what a page lists ---------------------------------------------------------------------------------------------
def members_of(status: Document | None, sort: str) -> list[Document]:
    """The members in their order on the page."""
    found = [each for each in (status or {}).get("members") or () if isinstance(each, dict)]
    return sorted(found, key=ORDERS[sort])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _by_index(member: Document) -> tuple[bool, float, str]:
    index = member.get("rank_index")
    return index is None, _number(index), str(member.get("id"))


ORDERS: dict[str, Callable[[Document], tuple[object, ...]]] = {
    "index": _by_index,
    "step": lambda member: (_number(member.get("step")), *_by_index(member)),
    "cpu": lambda member: (-_number(member.get("cpu")), *_by_index(member)),
    "memory": lambda member: (-(_number(member.get("memory_mib")) or _number(member.get("memory_limit_mib"))),
                              *_by_index(member)),
    "state": lambda member: (str(member.get("state")), *_by_index(member)),
}  # fmt: skip
"""Orders of members: the slowest step, the most CPU and the most memory first."""


def entries(seen: Seen, view: View, width: int) -> list[str]:
    """What the keys move over: names of jobs, ids of members, or the lines of a text."""
    if view.page == JOBS:
        return [str(each.get("job")) for each in seen.jobs]
    if view.page == JOB:
        return [str(each.get("id")) for each in members_of(seen.status, view.sort)]
    return [line.plain for line in _text(seen, view, width)]


def rows_of(seen: Seen, view: View, width: int, height: int) -> int:
    """How many entries the page shows at once."""
    return max(1, height - len(_top(seen, view, width, 0.0)) - len(_tail(seen, view, width, height)) - 2)


# -- a page --------------------------------------------------------------------------------------------------------
def page(seen: Seen, view: View, width: int, height: int | None, now: float) -> list[Text]:
    """The lines of a page; with a height exactly so many, without one all of them and no foot."""
    top = _top(seen, view, width, now)
    tail = _tail(seen, view, width, MOST_ROWS if height is None else height)
    rows = MOST_ROWS if height is None else max(1, height - len(top) - len(tail) - 2)
    lines = [*top, *_body(seen, view, width, rows, marked=height is not None), *tail]
    if height is not None:
        lines = lines[: height - 1]
        lines += [Text("")] * (height - 1 - len(lines))
        lines.append(_foot(seen, view))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _top(seen: Seen, view: View, width: int, now: float) -> list[Text]:
    lines: list[Text] = []
    age = None if seen.at is None else now - seen.at
    if seen.problem:
        since = "no answer yet" if age is None else f"the data are {seconds(age)} old"
        lines += _wrapped(f"{since}: {printable(seen.problem)}", width, "bold red")[:MESSAGE_LINES]
    elif age is not None and age > OLD_SECONDS:
        lines.append(Text(f"the data are {seconds(age)} old", style="bold yellow"))
    if view.page in (JOBS, HELP):
        return lines
    if seen.status is None:
        return [*lines, Text(f"{printable(view.job)}: reading its status", style="dim")]
    status = seen.status
    lines += _wrapped(sentence(status), width, STYLES.get(str(status.get("phase")), ""))
    if status.get("late"):
        lines += _wrapped(printable(status["late"]), width, "bold yellow")
    if status.get("message"):
        lines += _wrapped(printable(status["message"]), width, "")[:MESSAGE_LINES]
    if account := time_account(status):
        lines += _wrapped(account, width, "dim")[:2]
    return lines


def time_account(status: Document) -> str:
    """The time account (docs/concepts/time.md), the most first; empty if the status does not have it."""
    account = status.get("time")
    if not isinstance(account, dict):
        return ""
    spent = sorted(((_number(each), printable(cause)) for cause, each in account.items()), reverse=True)
    shown = [f"{cause} {seconds(each)}" for each, cause in spent if each > 0]
    more = [f"{len(shown) - CAUSES} more"] if len(shown) > CAUSES else []
    return f"time account: {', '.join([*shown[:CAUSES], *more])}" if shown else ""


def _body(seen: Seen, view: View, width: int, rows: int, marked: bool) -> list[Text]:
    if view.page not in (JOBS, JOB):
        return _text(seen, view, width)[view.scroll : view.scroll + rows]
    listed = seen.jobs if view.page == JOBS else members_of(seen.status, view.sort)
    if not listed:
        none = "no jobs" if view.page == JOBS else "no members yet" if seen.status is not None else ""
        return [Text(none if seen.at is not None else "", style="dim")]
    names = [str(each.get("job" if view.page == JOBS else "id")) for each in listed]
    at = names.index(chosen(view.job if view.page == JOBS else view.member, names))
    first = max(0, min(at - rows // 2, len(listed) - rows))
    columns = JOB_COLUMNS if view.page == JOBS else MEMBER_COLUMNS
    links = _links(seen.status or {})
    cells = [[column(each, links) for column in columns.values()] for each in listed[first : first + rows]]
    return _table(list(columns), cells, width, at - first if marked else -1)


def _tail(seen: Seen, view: View, width: int, height: int) -> list[Text]:
    """The last faults and events, if there is room for them."""
    if view.page != JOB or height < 16:
        return []
    faults = [each for each in (seen.status or {}).get("faults") or () if isinstance(each, dict)][-TAIL:]
    lines = [Text("last faults", style="dim")] if faults else []
    lines += [_fault(each) for each in faults]
    if seen.events_problem:
        return [*lines, Text(f"events: {printable(seen.events_problem)}", style="yellow")]
    lines += [Text("last events", style="dim")] if seen.events else []
    return lines + [_event(each) for each in seen.events[-TAIL:]]


def _foot(seen: Seen, view: View) -> Text:
    text = FOOT.get(view.page, f"q {'quit' if len(view.pages) == 1 else 'back'}  {JOB_FOOT}")
    if view.page == JOB:
        text = f"{text}  {plural(len((seen.status or {}).get('members') or ()), 'member')} by {view.sort}"
    return Text(text, style="reverse")


# -- texts ---------------------------------------------------------------------------------------------------------
def _text(seen: Seen, view: View, width: int) -> list[Text]:
    match view.page:
        case page if page == HELP:
            return [line for key, effect in KEYS.items() for line in _wrapped(f"{key:<16} {effect}", width, "")]
        case page if page == EVENTS:
            first = _wrapped(printable(seen.events_problem), width, "yellow") if seen.events_problem else []
            listed = [line for each in reversed(seen.events) for line in _wrapped_event(each, width)]
            return [Text("events, the newest first", style="dim"), *first, *listed]
        case page if page == STACKS:
            return _stacks(seen, view.member if MEMBER in view.pages else "", width)
    return _member(seen, view.member, width)


def _member(seen: Seen, name: str, width: int) -> list[Text]:
    found = [each for each in members_of(seen.status, "index") if str(each.get("id")) == name]
    if not found:
        return [Text(f"{printable(name)} is no longer in the status", style="yellow")]
    lines = [Text(printable(name), style="bold")]
    for field, value in found[0].items():
        if field != "id" and value not in (None, ""):
            lines += _wrapped(f"{printable(field).replace('_', ' '):<16} {printable(_shown(value))}", width, "")
    links = _links(seen.status or {})
    lines += _wrapped(f"{'links':<16} {printable(_link(found[0], links))}", width, "")
    lines += [_fault(each) for each in (seen.status or {}).get("faults") or ()
              if isinstance(each, dict) and each.get("member") == name]  # fmt: skip
    about = [each for each in seen.events if each.get("member") == name]
    return [*lines, *(_event(each) for each in about[-10:])]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " ".join(map(_shown, value)) or "-"
    return f"{value:,.2f}".removesuffix(".00") if isinstance(value, float) else str(value)


def _stacks(seen: Seen, member: str, width: int) -> list[Text]:
    if seen.stacks_problem:
        return _wrapped(printable(seen.stacks_problem), width, "yellow")
    if seen.stacks is None:
        return [Text("asking every rank for its stack", style="dim")]
    from outrider.cli.commands.stacks import NO_HANDLER, rows

    lines: list[Text] = []
    for name in seen.stacks.get("missing", ()):
        lines.append(Text(f"{printable(name)} did not answer", style="yellow"))
    for name, body in seen.stacks.get("members", {}).items():
        if "error" in body:
            lines += _wrapped(f"{printable(name)} did not answer: {printable(body['error'])}", width, "yellow")
    for name, row in rows(seen.stacks):
        if member in ("", name):
            lines.append(Text(printable(f"rank {row['rank']} ({name}, pid {row['pid']})"), style="bold"))
            stack = row.get("stack") or f"no stack: {row.get('error', NO_HANDLER)}"
            for each in str(stack).rstrip().splitlines():
                lines += [Text(part) for part in _chunks(printable(each.expandtabs()), width)]
            lines.append(Text(""))
    return lines or [Text("no rank is running", style="dim")]


def _chunks(line: str, width: int) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


def _wrapped(text: str, width: int, style: str) -> list[Text]:
    return [Text(line, style=style) for line in textwrap.wrap(text, max(10, width), subsequent_indent="  ")]


def _event(event: Document) -> Text:
    return Text(printable(f"{local_time(event.get('time'))} {event_line(event)}"), style=event_style(event))


def _wrapped_event(event: Document, width: int) -> list[Text]:
    line = _event(event)
    return _wrapped(line.plain, width, str(line.style))


def _fault(fault: Document) -> Text:
    lost = fault.get("seconds_lost")
    cost = "" if lost is None else f", {seconds(_number(lost))} lost"
    who = f" {fault['member']}" if fault.get("member") else ""
    return Text(printable(f"{local_time(fault.get('time'))} {fault.get('kind')}{who}{cost}: {fault.get('reason')}"),
                style="red")  # fmt: skip


# -- tables --------------------------------------------------------------------------------------------------------
Links = dict[str, str]
Cell = tuple[str, str]
"""A text and its style."""


def _links(status: Document) -> Links:
    """By member: the members that it cannot reach, or that its links are slow."""
    network = status.get("network")
    found: Links = {}
    for each in (network.get("slow") or ()) if isinstance(network, dict) else ():
        found |= {str(member): "slow" for member in each.get("members") or (each.get("member"),)}
    for each in (network.get("down") or ()) if isinstance(network, dict) else ():
        names = list(map(str, each.get("members") or ()))
        for name in names:
            found[name] = f"down: {' '.join(other for other in names if other != name)}"
    return found


def _link(member: Document, links: Links) -> str:
    trip, loss = member.get("round_trip_ms"), _number(member.get("loss"))
    parts = [links[str(member.get("id"))]] if str(member.get("id")) in links else []
    parts += [f"{_number(trip):.2f} ms"] if trip is not None else []
    parts += [f"{percent(loss)} lost"] if loss else []
    return " ".join(parts) or "-"


def _state(member: Document, links: Links) -> Cell:
    state = str(member.get("state") or member.get("phase") or "-")
    return ("blocked" if member.get("blocked") else state), STYLES.get(state, "")


def _plain(field: str, form: str = "{}") -> Callable[[Document, Links], Cell]:
    def cell(document: Document, links: Links) -> Cell:
        value = document.get(field)
        if value is None or value == "":
            return "-", ""
        return (form.format(value) if "{}" in form else form.format(_number(value))), ""

    return cell


def _memory(member: Document, links: Links) -> Cell:
    used, limit = _number(member.get("memory_mib")), _number(member.get("memory_limit_mib"))
    of = f"/{limit:,.0f}" if limit else ""
    return (f"{used:,.0f}{of}" if used else of or "-"), "bold yellow" if limit and used > 0.95 * limit else ""


def _link_cell(member: Document, links: Links) -> Cell:
    return _link(member, links), "bold red" if str(member.get("id")) in links else ""


MEMBER_COLUMNS: dict[str, Callable[[Document, Links], Cell]] = {
    "index": _plain("rank_index"),
    "member": _plain("id"),
    "state": _state,
    "step": _plain("step", "{:,.0f}"),
    "cpu": _plain("cpu", "{:.2f}"),
    "MiB": _memory,
    "node": _plain("node"),
    "mode": _plain("mode"),
    "links": _link_cell,
}
JOB_COLUMNS: dict[str, Callable[[Document, Links], Cell]] = {
    "job": _plain("job"),
    "phase": _state,
    "step": _plain("step", "{:,.0f}"),
    "restarts": _plain("restarts"),
    "goodput": lambda job, links: (percent(_number(share)) if (share := job.get("goodput")) is not None else "-", ""),
    "message": _plain("message"),
}
DROPPED = ("links", "mode", "node", "message", "MiB", "cpu", "goodput", "restarts")
"""Columns that may be left out, in this order."""
WIDEST = 48
"""Cells of the widest column but the last."""


def _table(names: Sequence[str], rows: list[list[Cell]], width: int, at: int) -> list[Text]:
    """Columns with a header; row `at` is marked, -1: none. Those without a value are left out, then those for which a
    narrow terminal has no room."""
    cells = [[(printable(text), style) for text, style in row] for row in rows]
    widths = {
        name: max(len(name), *(min(WIDEST, cell_len(row[number][0])) for row in cells))
        for number, name in enumerate(names)
    }
    empty = {name for number, name in enumerate(names) if all(row[number][0] == "-" for row in cells)}
    kept = [name for name in names if name not in empty or name not in DROPPED]
    for name in DROPPED:
        if sum(widths[each] + 1 for each in kept) - 1 > width and name in kept:
            kept.remove(name)
    lines = [Text(" ".join(set_cell_size(name, widths[name]) for name in kept), style="dim")]
    for number, row in enumerate(cells):
        line = Text(style="reverse" if number == at else "")
        for name, (text, style) in zip(names, row, strict=True):
            if name in kept:
                last = name == kept[-1]
                line.append(text if last else set_cell_size(text, widths[name]), style)
                line.append("" if last else " ")
        lines.append(line)
    return lines
