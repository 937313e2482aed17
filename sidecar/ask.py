"""`python -P -m sidecar.ask stacks`: queries this member's sidecar from within its container and prints the answer.

It serves users who may execute commands in a pod; `outrider stacks --pod` runs it. It always ends, and prints exactly
one JSON object. It uses only the standard library, so that it starts at once and takes little memory beside the
sidecar.
"""

from __future__ import annotations

import json
import os
import socket
import sys

QUESTIONS = ("stacks", "collectives")
PATIENCE = 8.0
"""Time-out in seconds; a healthy sidecar has answered, or given up, after 6."""


def answer(folder: str, what: str) -> str:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sidecar:
            sidecar.settimeout(PATIENCE)
            sidecar.connect(os.path.join(folder, "ask.sock"))
            sidecar.sendall(f"{what}\n".encode())
            with sidecar.makefile(encoding="utf-8") as reply:
                return reply.read() or error("the sidecar sent no answer: it is ending or has just started")
    except TimeoutError:
        return error(f"the sidecar did not answer within {PATIENCE:g} s")
    except OSError as why:
        return error(f"the sidecar could not be reached: {why.strerror or why}")


def error(sentence: str) -> str:
    return json.dumps({"error": sentence})


if __name__ == "__main__":
    print(answer(os.environ.get("OUTRIDER_DIR", "/outrider"), " ".join(sys.argv[1:])))
