"""`--save-signal`, `saveSignal`: the signal that makes a script with a handler of its own save its state.

A script must be able to handle the signal, and neither Outrider nor Python nor torch may use it for something else.
"""

from __future__ import annotations

from typing import Final

MAY_BE: Final = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGURG", "SIGWINCH")
TAKEN: Final = {
    "SIGKILL": "no process can handle it",
    "SIGSTOP": "no process can handle it",
    "SIGTERM": "Outrider stops ranks with it",
    "SIGINT": "users stop a command with it (Ctrl-C)",
    "SIGCONT": "it continues a stopped process",
    "SIGCHLD": "it reports that a child process has ended",
    "SIGPIPE": "it reports a closed pipe",
    "SIGQUIT": "it ends a process with a core dump",
    **dict.fromkeys(
        ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"), "it reports a crash of the process"
    ),
}


def parsed(text: str) -> str:
    """The signal's name, in capitals with SIG: `usr1` is SIGUSR1. Raises ValueError with the supported signals."""
    name = text.strip().upper()
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name in MAY_BE:
        return name
    value = f'"{name}" ({TAKEN[name]})' if name in TAKEN else f'"{text[:40]}"'
    raise ValueError(f"Unsupported value: {value}: supported values: {', '.join(MAY_BE)}")
