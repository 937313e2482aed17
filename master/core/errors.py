"""Which error is which: what is the cause and what its effect, what is the same error again, and how it reads.

When one rank dies, the others fail in their collectives a moment later; their errors are effects. Errors are the same
if their exception type, their message without its numbers and their deepest frame are: an address, a pid or a step in a
message makes no new error.
"""

from __future__ import annotations

import re

from wire.messages import WorkerExit

EFFECT_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError", "DistError")
EFFECT_TEXT = re.compile(
    r"gloo/transport|connection (closed by peer|reset by peer|refused)|broken pipe|ncclRemoteError|ncclSystemError|"
    r"NCCL (error|watchdog)|socket (timeout|timed out)|recvValue failed|store.*(timeout|timed out)|"
    r"monitoredBarrier|ProcessGroup(NCCL|Gloo|MPI).*(abort|timeout)",
    re.IGNORECASE,
)
PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip


def is_effect(exit: WorkerExit) -> bool:
    """An error of torch.distributed that some other rank's end brings about."""
    if exit.signal is not None or is_port_clash(exit):
        return False
    if any(exit.error_type.endswith(name) for name in EFFECT_TYPES):
        return True
    return exit.error_type != "" and EFFECT_TEXT.search(exit.error_message) is not None


def is_port_clash(exit: WorkerExit) -> bool:
    """The rendezvous port was taken between finding it and using it."""
    return is_port_clash_text(exit.error_message)


def is_port_clash_text(text: str) -> bool:
    return PORT_TAKEN.search(text) is not None


def signature(exit: WorkerExit) -> str:
    """Equal for equal errors; empty for a signal, and for a want of memory."""
    if exit.signal is not None or exit.out_of_memory:
        return ""
    if not exit.error_type:
        return f"exit code {exit.code}"
    return "|".join((exit.error_type, NUMBERS.sub("#", exit.error_message), exit.error_frame))


def exit_code(exit: WorkerExit) -> int:
    """As a shell says it: 128 + the signal's number for a signal. Where the kernel killed a process of it for its
    memory, its own code is as good as that of the kill."""
    if exit.out_of_memory:
        return 137
    if exit.signal is not None:
        return 128 + exit.signal
    return exit.code if exit.code else 1


def describe(exit: WorkerExit) -> str:
    """`was killed by SIGKILL`, `failed with ValueError: …`, `exited with code 3`."""
    if exit.out_of_memory and exit.error_type:
        return f"{_failed(exit)}, because the container ran out of memory"
    if exit.out_of_memory:
        return "was killed because the container ran out of memory"
    if exit.signal is not None:
        return f"was killed by {SIGNALS.get(exit.signal, f'signal {exit.signal}')}"
    return _failed(exit) if exit.error_type else f"exited with code {exit.code}"


def _failed(exit: WorkerExit) -> str:
    first_line = exit.error_message.strip().split("\n", 1)[0][:200].rstrip(".")
    name = exit.error_type.rsplit(".", 1)[-1]
    return f"failed with {name}: {first_line}" if first_line else f"failed with {name}"
