"""What holds for all tests: options, and how a test that is a coroutine function is run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import inspect
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.waiting import DEADLINE
from tests.warm import Warm

hypothesis.settings.register_profile("busy", deadline=None)  # a busy machine makes any example slow
hypothesis.settings.load_profile("busy")

BEGAN = pytest.StashKey[float]()
MARK = "TESTS_RUN"
"""In the environment of whatever a run of the tests starts, its workers included."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the golden transcripts anew instead of comparing with them"
    )
    parser.addoption(
        "--budget", type=float, metavar="MINUTES", help="start no test after so many minutes: it is skipped"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN] = time.monotonic()
    if not hasattr(config, "workerinput"):  # a worker has that of its run
        os.environ[MARK] = uuid.uuid4().hex
        config.pluginmanager.register(Failures(config))


class Failures:
    """Names what fails at once: a run may take half an hour more, or be cut off before it tells."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.splitlines()
            reason = next((line[2:].strip() for line in lines if line.startswith("E ")), " ".join(lines[-1:]))
            self._config.get_terminal_writer().line(
                f"\n{time.strftime('%X')} {report.nodeid} failed ({report.when}): {reason}"
            )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each of several workers begins with other modules, so that not all of them compile all, in a fresh copy.

    Thousands of tests are collected without a look for garbage, and are not looked at as long as they run.
    """
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:
        mine, all_of_them = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        names = sorted(path.relative_to(session.config.rootpath) for path in Path(__file__).parent.rglob("test_*.py"))
        for name in names[mine::all_of_them]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # told when it is collected
                importlib.import_module(".".join(name.with_suffix("").parts))


def pytest_make_parametrize_id(val: object) -> str | None:
    """A case of 300,000 brackets has a name that can be read; all workers would send the whole one to each other."""
    if isinstance(val, str | bytes) and len(val) > 120:
        return f"{val[:60]!r} and {len(val) - 60} more"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("--budget")
    if budget is not None and time.monotonic() - item.config.stash[BEGAN] > 60 * budget:
        pytest.skip(f"the {budget:g} minutes of --budget are over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait, real jobs first, lie among those that compute, of which a third is left for the end."""
    computing, waiting, jobs = list[pytest.Item](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        if item.get_closest_marker("slow") is not None:
            jobs.append(item)
        elif item.nodeid.startswith(("tests/unit/", "tests/simulation/", "tests/mutants/")):
            computing.append(item)
        else:
            waiting.append(item)
    waiting[:0] = jobs
    places = {item: number / len(computing) for number, item in enumerate(computing)}
    places |= {item: number / len(waiting) * 2 / 3 for number, item in enumerate(waiting)}
    items.sort(key=places.__getitem__)


def pytest_collection_finish(session: pytest.Session) -> None:
    """xdist tells a test's group by its name, and pytest 9.2 lost that without a word: the groups held no longer."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # instead of 700: tests make and drop many small objects
    gc.enable()
    if session.config.getoption("loadgroup", False):
        lost = [
            each.nodeid for each in session.items if each.get_closest_marker("xdist_group") and "@" not in each.nodeid
        ]
        if lost:
            raise pytest.UsageError(f"this pytest-xdist puts no test into its group, not even {lost[0]}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whatever a test has left behind fails the run: one process that computes takes half of two cores from all tests
    after it."""
    if hasattr(session.config, "workerinput"):
        return
    until = time.monotonic() + DEADLINE
    while (left := processes_of(os.environ[MARK])) and time.monotonic() < until:
        time.sleep(0.05)
    for about in left:
        print(f"\nERROR: left behind: {about}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def processes_of(run: str) -> list[str]:
    """What the run has started, but for this process: which command, by which test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            environ = dict(
                row.partition("=")[::2] for row in (folder / "environ").read_text(errors="replace").split("\0")
            )
            if environ.get(MARK) == run and folder.name != str(os.getpid()):
                command = " ".join((folder / "cmdline").read_text(errors="replace").split("\0"))
                found.append(f"{folder.name} {command!r} of {environ.get('PYTEST_CURRENT_TEST', 'a test')}")
    return found


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Starts scripts where torch is imported already."""
    made = Warm()
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """On a loop of its own. Its waits have deadlines of their own; what waits without one ends here."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 1200))
    return True
