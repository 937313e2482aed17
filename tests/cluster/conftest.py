"""Outrider installed once, a namespace a test, and whatever a test made is gone when it ends."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import masters, requests_made, telling, turns, watching
from tests.cluster.cluster import (
    DEADLINE,
    FOLDERS,
    SYSTEM,
    ClusterJob,
    Pods,
    kubectl,
    manifests,
    rolled_out,
    set_slots,
    until,
)
from tests.cluster.definitions import defined
from tests.cluster.reading import listed

_LONGEST = ("test_two_pods", "test_three_pods", "test_ps")
"""Each of them takes minutes, so they come first: who comes late to the end has something short."""
_GROUPS = {"slots": "slots", "make_ps": "tensorflow"}
"""By fixture the group of tests that do not run beside each other: they change one thing of the cluster's, or several
processes that import TensorFlow are enough for the machine."""

_TOLD = pytest.StashKey[bool]()
"""Whether this process has told of the installation."""


@pytest.hookimpl(tryfirst=True)  # then xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones come first, stories before others, and at the end those that are alone."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents and isinstance(item, pytest.Function)]
    for item in ours:
        item.add_marker(pytest.mark.cluster)
        for name in ["alone"] if _is_alone(item) else [_GROUPS[f] for f in item.fixturenames if f in _GROUPS]:
            item.add_marker(pytest.mark.xdist_group(name))
    ours.sort(key=lambda item: (_is_alone(item), item.path.stem not in _LONGEST, "subtests" not in item.fixturenames))
    items[:] = [*(item for item in items if item.get_closest_marker("cluster") is None), *ours]


def _is_alone(item: pytest.Item) -> bool:
    return any(item.iter_markers("alone")) or any(item.iter_markers("ends_masters"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """What the cluster says of a test that fails, before its namespace is gone; of a failed installation once."""
    report = yield
    namespace = getattr(item, "funcargs", {}).get("namespace")
    if report.when == "call" and report.failed and namespace:
        report.sections += telling.told_of(namespace)
    elif report.when == "setup" and report.failed and not item.config.stash.get(_TOLD, False):
        item.config.stash[_TOLD] = True
        report.sections += telling.told_of_the_installation()
    return report


@pytest.fixture(scope="session")
def installed(testrun_uid: str) -> Iterator[None]:
    """As its user installs it. The pods begin anew, so that they run the image that is there now."""
    with turns.once(testrun_uid) as is_first:
        if is_first:
            kubectl("apply", "-k", manifests())
            kubectl("-n", SYSTEM, "rollout", "restart", "deployment", "outrider-master", "outrider-webhook")
            rolled_out("outrider-webhook", "outrider-master")
    yield
    requests_made.record()


@pytest.fixture(autouse=True)
def turn(request: pytest.FixtureRequest, installed: None) -> Iterator[None]:
    """No master is started again beside a test that has not caused it (`ends_masters`): that fails the test."""
    is_alone = _is_alone(request.node)
    with turns.turn(is_alone):
        if is_alone:
            requests_made.record()
        before = masters.counts()
        yield
        again = masters.restarted(before, masters.counts())
    if again and not any(request.node.iter_markers("ends_masters")):
        pytest.fail(f"masters were started again, and no test has caused it: {again}")


@pytest.fixture
def namespace(turn: None, request: pytest.FixtureRequest) -> Iterator[str]:
    about = request.node.path.stem.removeprefix("test_").replace("_", "-")
    name = f"{about}-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    try:
        until(lambda: takes_pods(name), f"pods to be taken in {name}")
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")
        kubectl("-n", name, "delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
        until(lambda: not listed("pods", name), f"the pods of {name} to go")
        watching.close(name)
        shutil.rmtree(FOLDERS / name, ignore_errors=True)


def takes_pods(namespace: str) -> bool:
    """A namespace that has just been made has no service account for them yet."""
    command = ("kubectl", "-n", namespace, "run", "any", "--image=any", "--dry-run=server")
    return subprocess.run(command, capture_output=True, timeout=DEADLINE).returncode == 0


def folder_of(namespace: str, name: str) -> Path:
    """What the pods of a job have as /work."""
    folder = FOLDERS / namespace / name
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


Make = Callable[..., ClusterJob]


@pytest.fixture
def make(namespace: str) -> Make:
    def job(name: str = "train", **spec: object) -> ClusterJob:
        return ClusterJob(namespace, name, folder_of(namespace, name), **spec)  # type: ignore[arg-type]

    return job


MakePods = Callable[[str], Pods]


@pytest.fixture
def pods(namespace: str) -> MakePods:
    """Of another owner, which the test makes."""
    return lambda name: Pods(namespace, name, folder_of(namespace, name))


@pytest.fixture
def pytorchjobs(turn: None) -> Iterator[None]:
    """Their kind is known."""
    with defined("kubeflow.org", "v1", "PyTorchJob"):
        yield


@pytest.fixture
def slots() -> Iterator[Callable[[int], None]]:
    """Room for so many pods in the whole cluster."""
    first, *others = [node["metadata"]["name"] for node in listed("nodes")]

    def give(number: int) -> None:
        set_slots({first: number, **dict.fromkeys(others, 0)})

    yield give
    give(0)
