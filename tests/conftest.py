"""What holds for all tests: options, and how a test that is a coroutine function is run."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator

import hypothesis
import pytest

from tests.warm import Warm

hypothesis.settings.register_profile("busy", deadline=None)  # a busy machine makes any example slow
hypothesis.settings.load_profile("busy")

BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the golden transcripts anew instead of comparing with them"
    )
    parser.addoption(
        "--budget", type=float, metavar="MINUTES", help="start no test after so many minutes: it is skipped"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[BEGAN] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("--budget")
    if budget is not None and time.monotonic() - item.config.stash[BEGAN] > 60 * budget:
        pytest.skip(f"the {budget:g} minutes of --budget are over")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that start real jobs come first: side by side, they wait while the others compute."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """xdist tells a test's group by its name, and pytest 9.2 lost that without a word: the groups held no longer."""
    if session.config.getoption("loadgroup", False):
        lost = [
            each.nodeid for each in session.items if each.get_closest_marker("xdist_group") and "@" not in each.nodeid
        ]
        if lost:
            raise pytest.UsageError(f"this pytest-xdist puts no test into its group, not even {lost[0]}")


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
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 300))
    return True
