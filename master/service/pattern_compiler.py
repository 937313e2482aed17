"""Compiles users' patterns in a process of its own, because `re` knows no limit of time. The master's loop, on which
the webhook answers and the Lease is renewed, compiles none.

Each pattern is compiled once; what was found is kept. The process writes a line for each as it goes, and its own timer
of processor time ends it at one that takes too long, so that the first without a line is that one. One runs at a time,
and gives way to the master.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
from collections import OrderedDict
from dataclasses import astuple
from pathlib import Path

import outrider
from outrider.master.core.k8s.values.names import Document
from outrider.master.core.k8s.values.patterns import Verdict, Verdicts, judge, of_job, too_slow

MOST_CPU = 0.1
"""Seconds for one pattern: an ordinary one takes a few milliseconds."""
MOST_MEMORY = 1 << 30
SECONDS = 60.0
"""By the clock, for one pattern: that process gives way to all others, and on a busy node it may wait for long."""
KEPT = 4096
"""Patterns whose verdicts are kept, of all jobs: of at most 1,000 characters each."""
ROOT = Path(outrider.__file__).parents[1]


class NotJudged(Exception):
    """The process could not be run, or not to its end, by no fault of the patterns."""


class Patterns:
    def __init__(self, most_cpu: float = MOST_CPU) -> None:
        self._most_cpu = most_cpu
        self._found: OrderedDict[str, Verdict] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def verdicts(self) -> Verdicts:
        return self._found

    def unknown(self, job: Document) -> list[str]:
        """Those that have to be compiled first; none where one is known that refuses the job anyway."""
        texts = of_job(job)
        if any(text in self._found and self._found[text].is_slow for text in texts):
            return []
        return [text for text in texts if text not in self._found]

    async def learn(self, job: Document) -> None:
        """Raises NotJudged; what was found before that is kept."""
        if not self.unknown(job):
            return
        async with self._turn:
            texts = self.unknown(job)  # another one may have had the same
            if texts:
                await self._judge(texts)

    async def _judge(self, texts: list[str]) -> None:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        left = iter(texts)
        try:
            process.stdin.write(json.dumps(texts).encode())
            process.stdin.close()
            while line := await asyncio.wait_for(process.stdout.readline(), SECONDS):
                self._keep(next(left), Verdict(*json.loads(line)))
            ended = await process.wait()
        except (TimeoutError, OSError, ValueError) as error:
            raise NotJudged(f"the process that compiles patterns did not answer: {error!r}") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if (missing := next(left, None)) is not None:
            if ended != -signal.SIGPROF:
                raise NotJudged(f"the process that compiles patterns ended with {ended}")
            self._keep(missing, too_slow(self._most_cpu))

    async def _started(self) -> asyncio.subprocess.Process:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, str(self._most_cpu), stdin=pipe, stdout=pipe, stderr=nothing,
                env=environment,
            )  # fmt: skip
        except OSError as error:
            raise NotJudged(f"no process could be started to compile patterns: {error}") from error

    def _keep(self, text: str, verdict: Verdict) -> None:
        self._found[text] = verdict
        while len(self._found) > KEPT:
            self._found.popitem(last=False)


def main() -> None:
    """The process. SIGPROF ends it where nobody handles it."""
    most_cpu = float(sys.argv[1])
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for text in json.load(sys.stdin):
        signal.setitimer(signal.ITIMER_PROF, most_cpu)
        verdict = judge(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(astuple(verdict)), flush=True)  # a line is shorter than what a pipe takes at once


if __name__ == "__main__":
    main()
