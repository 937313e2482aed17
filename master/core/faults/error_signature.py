"""Classifies errors: which is a cause and which an effect, which errors are the same, and how they read.

When a rank dies, the others fail in their collectives a moment later; their errors are effects. Two errors are the same
if their exception type, their message without its numbers, and their deepest frame are equal: an address, a pid or a
step in a message does not make a new error.
"""

from __future__ import annotations

import re

from outrider.master.core.text import quoted
from outrider.wire.messages.generation import WorkerExit

EFFECT_TYPES = ("DistBackendError", "DistNetworkError", "DistStoreError", "DistError")
EFFECT_TEXT = re.compile(
    r"gloo/transport|connection (closed by peer|reset by peer|refused)|broken pipe|ncclRemoteError|ncclSystemError|"
    r"NCCL (error|watchdog)|socket (timeout|timed out)|recvValue failed|store.*(timeout|timed out)|"
    r"monitoredBarrier|ProcessGroup(NCCL|Gloo|MPI).*(abort|timeout)",
    re.IGNORECASE,
)
ITS_OWN = frozenset((
    "SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "NameError",
    "UnboundLocalError", "AttributeError", "TypeError", "ValueError", "UnicodeDecodeError", "UnicodeEncodeError",
    "KeyError", "IndexError", "LookupError", "AssertionError", "ArithmeticError", "ZeroDivisionError", "OverflowError",
    "FloatingPointError", "NotImplementedError", "RecursionError", "StopIteration", "RuntimeError",
))  # fmt: skip
"""Python's own exceptions, which show an error of the script. For those of a library, another try may help."""
OUTSIDE = re.compile(
    r"CUDA|cuDNN|CUBLAS|NCCL|\bHIP\b|ROCm|XLA|out of memory|cannot allocate|No space left|disk quota|read-only file|"
    r"Input/output error|Stale file handle|temporarily unavailable|name or service not known|name resolution|"
    r"timed? ?out|too many (open files|requests)|connection|\bsocket\b|broken pipe|rate limit|"
    r"\b(429|500|502|503|504)\b|service unavailable|bad gateway|try again|SIGKILL|killed by signal|"
    r"DataLoader worker|exited unexpectedly",
    re.IGNORECASE,
)
"""Errors that another moment, machine or neighbor may not have: storage, network, devices, memory, other processes."""
OUTSIDE_TYPE = re.compile(
    r"OSError|IOError|Connect|Timeout|HTTP|URLError|gaierror|SSL|Socket|BrokenPipe|Unavailable|Memory"
)
NEEDS_A_CHANGE = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "NameError")
USAGE = 2
"""The exit code of argparse, click and shells for invalid arguments."""
ONE_GPU = re.compile(r"Duplicate GPU detected")
"""NCCL rejects two ranks on one GPU however often it is tried."""
OF_NCCL = re.compile(r"\s*NCCL error in: (?s:.*)\nLast error:\s*(\S.*)")
"""The specific line of an NCCL error: the first line names only a class of errors."""
PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
LONGEST_LINE = 200
NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
SIGNALS = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
    10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 15: "SIGTERM",
}  # fmt: skip
NO_SERVER = "Could not start gRPC server"


def is_effect(exit: WorkerExit) -> bool:
    """Whether this is an error of torch.distributed that the end of another rank causes."""
    if exit.signal is not None or is_port_clash(exit) or ONE_GPU.search(exit.error_message):
        return False
    if any(exit.error_type.endswith(name) for name in EFFECT_TYPES):
        return True
    return exit.error_type != "" and EFFECT_TEXT.search(exit.error_message) is not None


def is_port_clash(exit: WorkerExit) -> bool:
    """Whether the rendezvous port was taken by another process between its choice and its use."""
    return is_port_clash_text(exit.error_message)


def is_port_clash_text(text: str) -> bool:
    return PORT_TAKEN.search(text) is not None


def is_its_own(exit: WorkerExit) -> bool:
    """Whether this is an exception of the script that repeats wherever the script runs."""
    return exit.error_type in ITS_OWN and not is_of_outside(exit)


def is_of_outside(exit: WorkerExit) -> bool:
    """Whether another try may succeed without a change of the script."""
    if exit.signal is not None or exit.out_of_memory or is_effect(exit):
        return True
    if ONE_GPU.search(exit.error_message):
        return False
    return bool(OUTSIDE.search(exit.error_message) or OUTSIDE_TYPE.search(exit.error_type.rpartition(".")[2]))


def needs_a_change(exit: WorkerExit) -> bool:
    """Whether a second try must fail: the script, the installed packages or the arguments need a change."""
    if exit.error_type:
        return exit.error_type.rsplit(".", 1)[-1] in NEEDS_A_CHANGE
    return exit.code == USAGE


def asked_for_input(exit: WorkerExit) -> bool:
    """Whether the rank used a debugger or `input()`: ranks have no standard input."""
    name = exit.error_type.rsplit(".", 1)[-1]
    return name == "BdbQuit" or (name == "EOFError" and exit.error_message.startswith("EOF when reading a line"))


def signature(exit: WorkerExit) -> str:
    """Equal for equal errors; empty for a signal, and if memory ran out."""
    if exit.signal is not None or exit.out_of_memory:
        return ""
    if not exit.error_type:
        return f"exit code {exit.code}"
    return "|".join((exit.error_type, NUMBERS.sub("#", exit.error_message), exit.error_frame))


def exit_code(exit: WorkerExit) -> int:
    """The code as a shell shows it: 128 + the signal's number for a signal. If the kernel killed a process of the rank
    for its memory, it is 137, whatever the rank's own code was."""
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
    return _failed(exit) if exit.error_type else f"exited with code {exit.code}{_last_line(exit)}"


def _last_line(exit: WorkerExit) -> str:
    """The last line that the rank wrote, if its output is kept: no exception shows why it ended."""
    last = exit.traceback.strip().rpartition("\n")[2].strip().rstrip(".")
    return f"; the last line it wrote is {quoted(last, LONGEST_LINE)}" if last else ""


def _failed(exit: WorkerExit) -> str:
    first_line = exit.error_message.strip().split("\n", 1)[0][:200].rstrip(".")
    if found := OF_NCCL.match(exit.error_message):
        first_line = f"{found[1].strip()[:200].rstrip('.')} ({first_line})"
    name = exit.error_type.rsplit(".", 1)[-1]
    return f"failed with {name}: {first_line}" if first_line else f"failed with {name}"


def about_its_address(address: str, end: WorkerExit) -> str:
    """Names the port, which TensorFlow's error does not. `address`: that of a PS job's member; empty for others."""
    if not address or NO_SERVER not in end.error_message:
        return ""
    return f": its address {address} is in use by another process, or not available here"
