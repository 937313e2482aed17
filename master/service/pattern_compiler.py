"""Compiles users' patterns in a separate process, because `re` has no time limit.

The master's loop, which answers webhook requests and renews the Lease, compiles none. Each pattern is compiled once,
and its verdict is cached. The process writes a line for each pattern as it proceeds; its own CPU timer ends it at one
that takes too long, so that the first pattern without a line is the slow one. One such process runs at a time, at a
lower priority than the master.
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
"""Most CPU seconds for one pattern: an ordinary one takes a few milliseconds."""
MOST_MEMORY = 1 << 30
SECONDS = 60.0
"""Most wall-clock seconds for one pattern: the process has low priority, and may wait for long on a busy node."""
KEPT = 4096
"""Most cached verdicts, over all jobs; a pattern has at most 1,000 characters."""
ROOT = Path(outrider.__file__).parents[1]


class NotJudged(Exception):
    """The process could not be started, or did not finish, for a reason other than the patterns."""


class Patterns:
    def __init__(self) -> None:
        self._found: OrderedDict[str, Verdict] = OrderedDict()
        self._turn = asyncio.Lock()

    @property
    def verdicts(self) -> Verdicts:
        return self._found

    def unknown(self, job: Document) -> list[str]:
        """Patterns of the job that must be compiled first; empty if a known one causes the job's refusal anyway."""
        texts = of_job(job)
        if any(text in self._found and self._found[text].is_slow for text in texts):
            return []
        return [text for text in texts if text not in self._found]

    async def learn(self, job: Document) -> None:
        """Compiles the job's unknown patterns. Raises NotJudged; verdicts found before that are kept."""
        if not self.unknown(job):
            return
        async with self._turn:
            texts = self.unknown(job)  # another job may have had the same patterns meanwhile
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
                raise NotJudged(f"the process that compiles patterns ended with exit code {ended}")
            self._keep(missing, too_slow(MOST_CPU))

    async def _started(self) -> asyncio.subprocess.Process:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, stderr=nothing, env=environment
            )
        except OSError as error:
            raise NotJudged(f"the process that compiles patterns could not be started: {error}") from error

    def _keep(self, text: str, verdict: Verdict) -> None:
        self._found[text] = verdict
        while len(self._found) > KEPT:
            self._found.popitem(last=False)


def main() -> None:
    """Runs the compiling process, which an unhandled SIGPROF ends at a slow pattern."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for text in json.load(sys.stdin):
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU)
        verdict = judge(text)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(astuple(verdict)), flush=True)  # a line is short enough to be written to the pipe atomically


if __name__ == "__main__":
    main()
