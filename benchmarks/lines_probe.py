"""A rank that prints: so many lines, as fast as it can or at a rate, and how long that took it."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

BURST = 1000
"""Lines after which the clock is looked at."""


def main() -> None:
    lines, rate, every, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    write, flush = sys.stdout.write, sys.stdout.flush
    began, late = time.monotonic(), 0.0
    for number in range(lines):
        met = " uncorrectable ECC error" if number % every == 0 else ""
        write(f"step {number:8d} loss 0.12345 grad norm 1.2345 tokens/s 123456{met}\n")
        if rate and number % BURST == BURST - 1:
            flush()
            ahead = began + (number + 1) / rate - time.monotonic()
            late = max(late, -ahead)
            time.sleep(max(ahead, 0.0))
    flush()
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    out.write_text(json.dumps({"seconds": time.monotonic() - began, "cpu": cpu, "late": late}))


if __name__ == "__main__":
    main()
