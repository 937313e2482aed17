"""What a launcher or a takeover tells the template that is to be. It is one variable beside the mark, because the
template is the same process after an exec, and nothing else survives that.

`OUTRIDER_INNER` is JSON: `reason` (why this process is the trainer), `nproc` and `max_restarts` (the inner launcher's,
or null), `macros` (true: `${local_rank}` in the script's arguments is to be filled in for each rank, as torchrun does),
`original` (the command that stood here before the takeover, for where no sidecar comes).
"""

import json
import os
import string

VARIABLE = "OUTRIDER_INNER"


def mark(environ, reason, nproc=None, max_restarts=None, macros=False, original=None):
    """`environ` with everything that makes the next Python in this process the template."""
    marked = dict(environ)
    told = {"reason": reason, "nproc": nproc, "max_restarts": max_restarts, "macros": macros}
    told["original"] = original
    marked["OUTRIDER_TEMPLATE"] = "1"
    marked[VARIABLE] = json.dumps(told)
    if (nproc or _number(environ.get("OUTRIDER_NPROC"))) > 1:
        marked.setdefault("OMP_NUM_THREADS", "1")  # torchrun does, and a library reads it once, at its load
    return marked


def _number(text):
    return int(text) if text and text.isdigit() else 1


_taken = {}


def take(environ=None):
    """What was told, removed from the environment so that no child sees it; {} where nothing was."""
    global _taken
    environ = os.environ if environ is None else environ
    try:
        told = json.loads(environ.pop(VARIABLE, "{}"))
    except ValueError:
        told = {}
    _taken = told if isinstance(told, dict) else {}
    return _taken


def taken():
    """What this process was told when it took it."""
    return _taken


def settle():
    """After a template has let its process go on to the script: where that is no worker process (no sidecar came), it
    becomes the inner launcher that it was taken from, without us."""
    original = _taken.get("original")
    if original and "OUTRIDER_GENERATION" not in os.environ:
        kept = {name: value for name, value in os.environ.items() if name not in ("OUTRIDER_DIR", "OUTRIDER_WORKER")}
        os.execvpe(original[0], original, kept)


def fill_in(arguments, local_rank):
    """torchrun's macros in a rank's arguments."""
    return [string.Template(each).safe_substitute(local_rank=str(local_rank)) for each in arguments]
