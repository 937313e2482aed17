"""Settings that a launcher or a replaced torchrun gives to the future template, in one environment variable.

The template is the same process after an exec, and only the environment survives that.

`OUTRIDER_INNER` is JSON: `reason` (why this process is the trainer), `nproc` and `max_restarts` (the inner launcher's,
or null), `macros` (true: `${local_rank}` in the script's arguments is replaced for each rank, as torchrun does),
`original` (the command that stood here before the replacement, which runs if no sidecar comes).
"""

import json
import os
import string

VARIABLE = "OUTRIDER_INNER"


def mark(environ, reason, nproc=None, max_restarts=None, macros=False, original=None):
    """`environ` with everything that makes the next Python in this process the template."""
    marked = dict(environ)
    settings = {"reason": reason, "nproc": nproc, "max_restarts": max_restarts, "macros": macros}
    settings["original"] = original
    marked["OUTRIDER_TEMPLATE"] = "1"
    marked[VARIABLE] = json.dumps(settings)
    if (nproc or _number(environ.get("OUTRIDER_NPROC"))) > 1:
        marked.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; a library reads it once, when it is loaded
    return marked


def _number(text):
    return int(text) if text and text.isdigit() else 1


_taken = {}


def take(environ=None):
    """Removes the settings from the environment, so that no child sees them, and returns them; {} if there are none."""
    global _taken
    environ = os.environ if environ is None else environ
    try:
        settings = json.loads(environ.pop(VARIABLE, "{}"))
    except ValueError:
        settings = {}
    _taken = settings if isinstance(settings, dict) else {}
    return _taken


def taken():
    """The settings that `take` returned in this process."""
    return _taken


def settle():
    """Called after a template has released its process to the script. If that is not a worker process (no sidecar
    came), it becomes the inner launcher that was replaced, without Outrider."""
    original = _taken.get("original")
    if original and "OUTRIDER_GENERATION" not in os.environ:
        kept = {name: value for name, value in os.environ.items() if name not in ("OUTRIDER_DIR", "OUTRIDER_WORKER")}
        os.execvpe(original[0], original, kept)


def fill_in(arguments, local_rank):
    """Replaces torchrun's macros in a rank's arguments."""
    return [string.Template(each).safe_substitute(local_rank=str(local_rank)) for each in arguments]
