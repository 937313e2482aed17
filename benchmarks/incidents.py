"""Can a reader of a report say what happened, on which rank and where? One job, one fault, one report each.

`outrider chaos` injects the fault. The judge sees the text of the report alone, without markup and scripts, and looks
for the kind of the fault, the rank and the machine.

    python benchmarks/incidents.py --jobs 50
"""

from __future__ import annotations

import argparse
import contextlib
import html.parser
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from measure.ours import OutriderJob, outrider

SCRIPT = Path(__file__).with_name("time_probe.py")
RANK = 1
"""`outrider chaos` picks the last member that trains."""
INCIDENTS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("kill-process", "--signal", "KILL"), ("WorkerExited",)),
    (("kill-process", "--signal", "SEGV"), ("WorkerExited",)),
    (("kill-process", "--signal", "ABRT"), ("WorkerExited",)),
    (("kill-process", "--signal", "TERM"), ("WorkerExited",)),
    (("kill-launcher",), ("TrainerLost", "MemberFailed")),
    (("kill-member",), ("MemberLost", "MemberFailed", "MemberSilent")),
    (("hang",), ("HangDetected",)),
    (("freeze-member",), ("MemberSilent", "MemberLost")),
)
"""Each command of `outrider chaos` with the kinds of fault that are a right name for it."""


class Text(html.parser.HTMLParser):
    """The text that a reader sees, without scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.found.append(data)


def text_of(report: Path) -> str:
    reader = Text()
    reader.feed(report.read_text())
    return " ".join(" ".join(reader.found).split())


def missing(text: str, kinds: tuple[str, ...]) -> list[str]:
    """What the text does not say."""
    found = {
        "the kind of the fault": any(kind in text for kind in kinds),
        "the rank": re.search(rf"\branks? {RANK}\b", text, re.IGNORECASE) is not None,
        "the machine": socket.gethostname() in text,
    }
    return [what for what, is_there in found.items() if not is_there]


def played(number: int, folder: Path) -> tuple[str, list[str]]:
    command, kinds = INCIDENTS[number % len(INCIDENTS)]
    job = OutriderJob(2, [str(SCRIPT), str(folder), "100000"], folder / "log",
                      flags=["--hang-after", "5", "--silent-after", "3"])  # fmt: skip
    job.start()
    try:
        wait(job, lambda status: status["step"] >= 10)
        subprocess.run(outrider("chaos", command[0], job.job, *command[1:]), env=job.environment, check=True,
                       capture_output=True, timeout=60)  # fmt: skip
        wait(
            job,
            lambda status: (
                bool(status["faults"]) and all(fault["seconds_lost"] is not None for fault in status["faults"])
            ),
        )
    finally:
        job.stop()
    report = folder / "report.html"
    subprocess.run(outrider("report", job.job, "-o", str(report)), env=job.environment, check=True, timeout=60,
                   capture_output=True)  # fmt: skip
    return " ".join(command), missing(text_of(report), kinds)


def has_recovered(status: dict[str, Any]) -> bool:
    return bool(status["faults"]) and all(fault["seconds_lost"] is not None for fault in status["faults"])


def wait(job: OutriderJob, is_so: Any, limit: float = 240.0) -> None:
    give_up = time.monotonic() + limit
    while time.monotonic() < give_up:
        with contextlib.suppress(subprocess.SubprocessError, ValueError):
            if is_so(job.status()):
                return
        time.sleep(0.2)
    raise TimeoutError(f"not within {limit:g} s; the log: {job.log.read_text()[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=50)
    options = parser.parse_args()
    bad = 0
    for number in range(options.jobs):
        with tempfile.TemporaryDirectory() as folder:
            what, lacks = played(number, Path(folder))
        bad += bool(lacks)
        print(f"{number:3} {what}: {'the report does not say ' + ' or '.join(lacks) if lacks else 'ok'}", flush=True)
    print(f"{options.jobs - bad} of {options.jobs} incidents can be read from the text of their report")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
