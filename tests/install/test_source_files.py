"""A reader finds one subject in one file, and what it is in the first sentence of the file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ("master", "outrider", "sidecar", "training_hooks")
FOLDERS = (*INSTALLED, "benchmarks", "examples", "manifests")

MOST_LINES = 400

MOST_WORDS = 20
END_OF_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=\W*[A-Z]|`)")


def files(*folders: str) -> list[Path]:
    """Under the one name that each has: `outrider/master` and `outrider/sidecar` are links."""
    found = {path.resolve() for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return sorted(path.relative_to(ROOT) for path in found)


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    return END_OF_SENTENCE.split(" ".join(text.partition("\n\n")[0].split()))[0]


def test_no_source_file_outside_the_tests_is_long() -> None:
    long = {str(path) for path in files(*FOLDERS) if len((ROOT / path).read_text().splitlines()) > MOST_LINES}
    assert long == set(), "split it along its subjects"


def test_the_first_sentence_of_each_module_is_short() -> None:
    long = {str(path) for path in files(*INSTALLED) if len(first_sentence(path).split()) > MOST_WORDS}
    assert long == set(), "say it in fewer words"


# -- variables that two sides share ------------------------------------------------------------------------------
VARIABLE = re.compile(r"OUTRIDER_[A-Z_]*[A-Z]")


def test_every_variable_that_the_code_names_is_in_the_contract_and_none_besides() -> None:
    """Who sets one and who reads it are apart, in the hooks, the sidecar, the master and the command line."""
    named = {
        node.value
        for path in files(*INSTALLED)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
    }
    assert named == set(VARIABLE.findall((ROOT / "docs/contracts.md").read_text()))


def test_the_index_of_decisions_has_each_with_its_title() -> None:
    decisions = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
    titles = [f"- [{each.read_text().splitlines()[0].lstrip('# ')}]({each.name})" for each in decisions]
    assert (ROOT / "docs/adr/README.md").read_text().splitlines()[2:] == titles
