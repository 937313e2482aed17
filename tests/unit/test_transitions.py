"""Both cores change what they are in by one table each: nothing goes past it, and the documents show it as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.master.core.events import StopAsked
from outrider.master.core.generation import stages
from outrider.master.core.state.job import FINISHING, GATHERING, State
from outrider.sidecar.core import transitions
from outrider.wire.messages.membership import TrainerExited
from tests.unit.master.core.play import running

ROOT = Path(__file__).resolve().parents[2]
CORES = [("master/core", "stage", stages), ("sidecar/core", "phase", transitions)]


def nodes(folder: str) -> Iterator[tuple[Path, ast.AST]]:
    for path in (ROOT / folder).rglob("*.py"):
        yield from ((path, node) for node in ast.walk(ast.parse(path.read_text())))


@pytest.mark.parametrize(("folder", "field", "module"), CORES)
def test_nothing_but_the_table_changes_it(folder: str, field: str, module: object) -> None:
    (kept,) = {"stage": ["generation/stages.py"], "phase": ["transitions.py"]}[field]
    owners = {"stage": {"state", "job", "task.state"}, "phase": {"state"}}[field]
    elsewhere = [
        f"{path}:{node.lineno}"
        for path, node in nodes(folder)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == field
        if ast.unparse(node.value) in owners and not path.as_posix().endswith(kept)
    ]
    assert not elsewhere


@pytest.mark.parametrize(("folder", "field", "module"), CORES)
def test_each_cause_of_the_table_is_one_that_happens(folder: str, field: str, module: object) -> None:
    told = {
        node.args[1].value
        for _path, node in nodes(folder)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("move", "stages.move")
        if isinstance(node.args[1], ast.Constant)
    }
    assert told == {cause for _at, cause in module.TABLE}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("folder", "field", "module"), CORES)
def test_the_diagram_in_the_documents_is_the_table(folder: str, field: str, module: object) -> None:
    text = (ROOT / "docs/contracts.md").read_text()
    assert f"```mermaid\n{module.draw()}\n```" in text  # type: ignore[attr-defined]


def test_what_is_not_in_the_table_is_a_bug() -> None:
    state = State()
    with pytest.raises(KeyError):
        stages.move(state, "generation started")
    assert state.stage == GATHERING


def test_a_command_that_ends_well_behind_the_end_changes_nothing_of_it() -> None:
    play = running(1)
    play.tell(StopAsked("enough"))
    assert play.stage == FINISHING
    play.say(play["worker-0"], TrainerExited(0, "it ended"))
    play.until(lambda: play.ended() is not None)
    assert play.phase == "stopped"
    assert not play.announced("JobSucceeded")
