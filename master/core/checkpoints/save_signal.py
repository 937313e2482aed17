"""`--save-signal`, `saveSignal`: the signal by which a script with a handler of its own is asked to save.

It may be one that a script can handle and that nothing else here, in Python or in torch means something by.
"""

from __future__ import annotations

from typing import Final

MAY_BE: Final = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGURG", "SIGWINCH")
TAKEN: Final = {
    "SIGKILL": "no process can handle it",
    "SIGSTOP": "no process can handle it",
    "SIGTERM": "by it Outrider ends ranks",
    "SIGINT": "by it the user ends a command (Ctrl-C)",
    "SIGCONT": "by it a process goes on that was stopped",
    "SIGCHLD": "it says that a child has ended",
    "SIGPIPE": "it says that nobody reads any more",
    "SIGQUIT": "it ends a process with a core dump",
    **dict.fromkeys(
        ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"), "it means that a process is broken"
    ),
}


def parsed(text: str) -> str:
    """Its name; ValueError says what it may be. `usr1` is SIGUSR1."""
    name = text.strip().upper()
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name in MAY_BE:
        return name
    why = f"{name} cannot ask a script to save: {TAKEN[name]}" if name in TAKEN else f"{text[:40]!r} is no such signal"
    raise ValueError(f"{why}; it may be {', '.join(MAY_BE[:-1])} or {MAY_BE[-1]}")
