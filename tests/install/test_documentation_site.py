"""The pages of the documentation: each is in the navigation, links lead to files, and nothing of the code is left out.

`make docs` builds the site and finds broken anchors too; it needs the extra `docs`, and this does not.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from outrider.cli.main import main
from outrider.wire.messages import data_position

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)[^)\s]*\)")
EVENTS = (DOCS / "reference/events.md").read_text()


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py, which MkDocs loads by its path."""
    found = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def pages_of(navigation: Any) -> Iterator[str]:
    if isinstance(navigation, str):
        yield navigation
    for below in navigation.values() if isinstance(navigation, dict) else navigation:
        if not isinstance(navigation, str):
            yield from pages_of(below)


def test_each_page_is_in_the_navigation_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = list(pages_of(config["nav"]))
    ours = [page.relative_to(DOCS).as_posix() for page in PAGES if page.parent.name != "adr"]
    assert sorted(named) == sorted([*ours, "adr/"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_link_leads_to_a_file(document: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [link for link in LINK.findall(prose) if not (document.parent / link).exists()] == []


def commands_of(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        yield f"{name} {each}", command
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{name} {each}")


def test_the_reference_has_every_command_with_every_option(generate: ModuleType) -> None:
    sections = re.split(r"^#+ `(.+)`$", generate.command_line(), flags=re.MULTILINE)
    shown = dict(zip(sections[1::2], sections[2::2], strict=True))
    commands = dict(commands_of(main, "outrider"))
    assert shown.keys() == commands.keys()
    for name, command in commands.items():
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        missing = [each.opts[0] for each in options if not re.search(rf"`[^`]*{each.opts[0]}\b", shown[name])]
        assert missing == [], name


def test_the_reference_has_every_field_of_an_elastic_job(generate: ModuleType) -> None:
    shown = re.findall(r"^\| `([\w.\[\]]+)` \|", generate.elastic_job(), re.MULTILINE)
    assert len(shown) == len(set(shown))
    for field in (
        "spec.replicaSpecs.ROLE.minReplicas",
        "spec.recovery.hang.step",
        "spec.recovery.rules[].nodeCondition.type",
        "spec.scaling.schedule[].cron",
        "status.conditions[].type",
    ):
        assert field in shown


def test_the_reference_has_every_field_of_the_status() -> None:
    """Those that the master's core writes, whichever module adds them."""
    rows = re.findall(r"^\|.*", (DOCS / "reference/status.md").read_text(), re.MULTILINE)
    documented = {
        word for row in rows for code in re.findall(r"`([^`]+)`", row) for word in re.findall("[a-z_]+", code)
    }
    for module in ("status/document", "network/report", "stragglers/report", "scaling/curve"):
        tree = ast.parse((ROOT / f"master/core/{module}.py").read_text())
        keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys if key]
        named = {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
        assert named - documented - {"saved"} == set(), module


# -- Events --------------------------------------------------------------------------------------------------------
KIND = re.compile(r"(?:[A-Z][a-z]+|PDB)(?:[A-Z][a-z]+|PDB)+")
EMITTERS = {
    "announce",
    "begin",
    "member_lost",
    "_blame",
    "_lost",
    "_note",
    "_take_blame",
    "_take_over",
    "_tell",
    "_warn",
}
"""Functions of the master that take the kind of an Event."""
NAMED_BY_OBJECT = {"PodDisruptionBudgetConflict", "ServiceConflict"}
"""Kinds that `master.kubernetes.owned_objects` makes of the kind of an object."""
LISTED = {kind for row in re.findall(r"^\| ([A-Za-z, ]+) \|", EVENTS, re.MULTILINE) for kind in KIND.findall(row)}


def nodes(folder: str) -> Iterator[ast.AST]:
    """Every node of a package's code."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def kinds(nodes: Iterable[ast.AST]) -> set[str]:
    """The kinds of Events that the constants among them name."""
    values = {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return {value for value in values if KIND.fullmatch(value)}


def emitted() -> set[str]:
    found = set(data_position.DATA_KINDS.values())
    for node in nodes("master"):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in EMITTERS:
            found |= kinds(ast.walk(node))
    return found


def test_every_event_that_is_emitted_is_listed() -> None:
    found = emitted()
    assert len(found) > 100
    assert found - LISTED == set()


def test_every_event_that_is_listed_is_in_the_code() -> None:
    assert LISTED - kinds(nodes("master")) - kinds(nodes("outrider")) == NAMED_BY_OBJECT


def test_each_event_says_what_happened() -> None:
    rows = [line.strip("|").split("|") for line in EVENTS.splitlines() if re.match(r"\| [A-Z][a-z]+[A-Z]", line)]
    assert [row for row in rows if len(row) != 4 or len(row[2]) < 15] == []
