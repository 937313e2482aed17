"""What holds for all tests: options, and how a test that is a coroutine function is run."""

from __future__ import annotations

import asyncio
import inspect

import hypothesis
import pytest

hypothesis.settings.register_profile("busy", deadline=None)  # a busy machine makes any example slow
hypothesis.settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write the golden transcripts anew instead of comparing with them"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """On a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 60))
    return True
