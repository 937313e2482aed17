"""Writes the reason for an end that Outrider decides: one line in the container's log, and its termination message.

The kubelet creates the message's file; if it has not, no file is created here.
"""

import os

TERMINATION_LOG = "/dev/termination-log"
LONGEST = 2000


def report(text, environ):
    line = ("outrider: %s\n" % text.strip()[:LONGEST]).encode(errors="replace")
    for write in (_to_log, _to_message):
        try:
            write(line, environ)
        except OSError:
            pass


def _to_log(line, _environ):
    os.write(2, line)


def _to_message(line, environ):
    path = environ.get("OUTRIDER_TERMINATION_LOG") or TERMINATION_LOG
    message = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        os.write(message, line)
    finally:
        os.close(message)
