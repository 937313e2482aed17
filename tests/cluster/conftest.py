"""Outrider installed once, a namespace a test, and whatever a test made is gone when it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster import requests_made, telling
from tests.cluster.cluster import FOLDERS, SYSTEM, ClusterJob, Pods, kubectl, manifests, rolled_out, set_slots, until
from tests.cluster.masters import Restarts
from tests.cluster.reading import listed

_numbers = count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """What the cluster says of a test that fails, before its namespace is gone."""
    report = yield
    namespace = getattr(item, "funcargs", {}).get("namespace")
    if report.when == "call" and report.failed and namespace:
        report.sections += telling.told_of(namespace)
    return report


_restarts = Restarts()
_was_meant = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[bool | None]:
    """Each restart of a master is one that a test has caused; one that thaws may end a moment after its test."""
    global _was_meant
    is_ours = Path(__file__).parent in item.path.parents
    is_meant = item.get_closest_marker("ends_masters") is not None
    if is_ours:
        _restarts.look(f"before {item.nodeid}", _was_meant or is_meant)
    done = yield
    if is_ours:
        _restarts.look(item.nodeid, is_meant)
        _was_meant = is_meant
    return done


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _restarts.table:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _restarts.table:
        terminalreporter.section("masters that were started again, and no test has caused it")
        for when, pod, how in _restarts.table:
            terminalreporter.write_line(f"{when}: {pod}: {how}")


@pytest.fixture(scope="session")
def installed() -> None:
    """As its user installs it. The pods begin anew, so that they run the image that is there now."""
    kubectl("apply", "-k", manifests())
    kubectl("-n", SYSTEM, "rollout", "restart", "deployment", "outrider-master", "outrider-webhook")
    rolled_out("outrider-webhook", "outrider-master")


@pytest.fixture
def namespace(installed: None) -> Iterator[str]:
    name = f"t{next(_numbers)}"
    kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
        kubectl("-n", name, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        until(lambda: not listed("pods", name), f"the pods of {name} to go")
        requests_made.record()


Make = Callable[..., ClusterJob]


@pytest.fixture
def make(namespace: str) -> Iterator[Make]:
    folders: list[Path] = []

    def job(name: str = "train", **spec: object) -> ClusterJob:
        folder = FOLDERS / namespace / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        folders.append(folder)
        return ClusterJob(namespace, name, folder, **spec)  # type: ignore[arg-type]

    yield job
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


MakePods = Callable[[str], Pods]


@pytest.fixture
def pods(namespace: str) -> Iterator[MakePods]:
    """Of another owner, which the test makes."""
    folders: list[Path] = []

    def made(name: str) -> Pods:
        folder = FOLDERS / namespace / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        folders.append(folder)
        return Pods(namespace, name, folder)

    yield made
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """Processes that a test stops; they go on at its end at the latest."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def slots() -> Iterator[Callable[[int], None]]:
    """Room for so many pods in the whole cluster."""
    first, *others = [node["metadata"]["name"] for node in listed("nodes")]

    def give(number: int) -> None:
        set_slots({first: number, **dict.fromkeys(others, 0)})

    yield give
    give(0)
