"""What the user looks at in `outrider top`, and what each key changes. Pure: no terminal, no job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

JOBS, JOB, MEMBER, STACKS, EVENTS, HELP = "jobs", "job", "member", "stacks", "events", "help"
SORTS = ("index", "step", "cpu", "memory", "state")
KEYS = {
    "↑ ↓ j k": "choose a member or a job; scroll a text",
    "PgUp PgDn g G": "one page, the first, the last",
    "Enter": "show the chosen member or job",
    "o": f"order the members by {', '.join(SORTS)}",
    "s": "show the stacks of the job, or of the member that is shown; read them again",
    "e": "show the events",
    "?": "show this help",
    "q Esc": "back; on the first page: quit",
}
"""Every key with its effect."""
MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}


@dataclass(frozen=True, slots=True)
class View:
    """The pages that are open, the last one on top, and what is chosen on them."""

    pages: tuple[str, ...]
    job: str = ""
    """The job that is shown; on the list of jobs the chosen one."""
    member: str = ""
    """The chosen member; empty: the first."""
    sort: str = SORTS[0]
    scroll: int = 0
    """The first line of a text that is shown."""
    asked: int = 0
    """Number of requests for stacks."""

    @property
    def page(self) -> str:
        return self.pages[-1]


def pressed(view: View, key: str, entries: Sequence[str], rows: int) -> View | None:
    """The view after a key, or None to quit. `entries`: jobs or members in their order on the page, or the lines of a
    text; `rows`: how many of them the page shows."""
    if key in ("q", "escape"):
        return None if len(view.pages) == 1 else replace(view, pages=view.pages[:-1], scroll=0)
    if key == "enter":
        return _entered(view, entries)
    if key == "?" and view.page != HELP:
        return _opened(view, HELP)
    if view.page in (JOB, MEMBER, STACKS, EVENTS):
        if key == "s":
            return replace(view if view.page == STACKS else _opened(view, STACKS), asked=view.asked + 1)
        if key == "e" and view.page != EVENTS:
            return _opened(view, EVENTS)
    if key == "o" and view.page == JOB:
        return replace(view, sort=SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)])
    return _moved(view, key, entries, rows)


def _opened(view: View, page: str) -> View:
    return replace(view, pages=(*view.pages, page), scroll=0)


def _entered(view: View, entries: Sequence[str]) -> View:
    if view.page == JOBS and entries:
        return replace(_opened(view, JOB), job=chosen(view.job, entries), member="")
    if view.page == JOB and entries:
        return replace(_opened(view, MEMBER), member=chosen(view.member, entries))
    return view


def _moved(view: View, key: str, entries: Sequence[str], rows: int) -> View:
    pages = {"pageup": -rows, "pagedown": rows, "g": -len(entries), "home": -len(entries), "G": len(entries),
             "end": len(entries)}  # fmt: skip
    by = MOVES.get(key, pages.get(key, 0))
    if not by:
        return view
    if view.page not in (JOBS, JOB):
        return replace(view, scroll=max(0, min(view.scroll + by, len(entries) - rows)))
    if not entries:
        return view
    field = "job" if view.page == JOBS else "member"
    at = entries.index(chosen(getattr(view, field), entries))
    found = entries[max(0, min(at + by, len(entries) - 1))]
    return replace(view, job=found) if view.page == JOBS else replace(view, member=found)


def chosen(name: str, entries: Sequence[str]) -> str:
    """The chosen entry; the first one if none was chosen or the chosen one has gone."""
    return name if name in entries else entries[0] if entries else ""
