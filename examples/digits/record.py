"""Records what `make demo` prints on a terminal as a picture, docs/demo.svg: `python examples/digits/record.py`.

The progress line and most lines of the script are left out so that the picture stays short. No line is changed, but for
the folders in it and its end, if it is longer than the picture is wide.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
COLUMNS = 116
OWN = 2
"""Lines of the script's own output that are kept of each stretch of them."""
ERASE = "\x1b[2K"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent.parent / "docs" / "demo.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raw, code = recorded([sys.executable, "-P", str(HERE / "demo.py"), "--job", "digits", "--out", f"{folder}/out"])
        text = raw.replace(f"{folder}/", "").replace(f"{HERE.parent.parent}/", "")
    if code:
        print(raw, file=sys.stderr)
        return code
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in shown(text):
        console.print(Text.from_ansi(line), soft_wrap=False, overflow="ellipsis", no_wrap=True)
    console.save_svg(str(args.out), title="make demo", clear=True)
    return 0


def recorded(command: list[str]) -> tuple[str, int]:
    """What the command writes on a terminal of `COLUMNS` columns, and its exit code."""
    reading, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal)
    os.close(terminal)
    found: list[bytes] = []
    with contextlib.suppress(OSError):  # EIO: the last process that has it open has ended
        while chunk := os.read(reading, 4096):
            found.append(chunk)
    return b"".join(found).decode(errors="replace"), process.wait()


def shown(text: str) -> list[str]:
    """The lines as they stand at the end, until the timeline that repeats them, and the demo's last lines."""
    rows = text.replace("\r\n", "\n").split("\n")
    until = next((at for at, row in enumerate(rows) if row.startswith("The timeline")), len(rows))
    lines: list[str] = []
    stretch = 0
    for row in rows[:until]:
        for line in filter(
            str.strip, (part.replace("\r", "") for part in re.split("(?=demo: )", row.rpartition(ERASE)[2]))
        ):
            stretch = stretch + 1 if re.match(r"(\x1b\[\d*m)*\[\d+\]: ", line) else 0
            if stretch <= OWN:
                lines.append(line)
    return [*lines, *(row for row in rows[until:] if re.match("lost in all|accuracy", row))]


if __name__ == "__main__":
    sys.exit(main())
