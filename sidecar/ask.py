"""`python -P -m sidecar.ask stacks`: asks this member's sidecar from within its container, and prints what it says.

For who may execute a command in a pod: `outrider stacks --pod` does. It prints one JSON object, whatever happens, and
always ends. Of the standard library alone, so that it begins at once and takes no memory from the sidecar beside it.
"""

from __future__ import annotations

import json
import os
import socket
import sys

QUESTIONS = ("stacks", "collectives")
PATIENCE = 8.0
"""Seconds; a sidecar that is well has answered, or given up, after 6."""


def answer(folder: str, what: str) -> str:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sidecar:
            sidecar.settimeout(PATIENCE)
            sidecar.connect(os.path.join(folder, "ask.sock"))
            sidecar.sendall(f"{what}\n".encode())
            with sidecar.makefile(encoding="utf-8") as said:
                return said.read() or error("the sidecar is ending, or was started just now")
    except TimeoutError:
        return error(f"the sidecar has not answered for {PATIENCE:g} s")
    except OSError as why:
        return error(f"the sidecar does not take questions: {why.strerror or why}")


def error(sentence: str) -> str:
    return json.dumps({"error": sentence})


if __name__ == "__main__":
    print(answer(os.environ.get("OUTRIDER_DIR", "/outrider"), " ".join(sys.argv[1:])))
