"""What is written about the core is what the core does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import outrider.master.core
from outrider.master.core.events import Event
from outrider.master.core.handlers.deadlines import DEADLINES
from outrider.master.core.handlers.events import HANDLERS
from outrider.master.core.handlers.messages import MESSAGES
from outrider.wire.messages.directions import FromSidecar
from outrider.wire.messages.membership import Hello

ROOT = Path(__file__).resolve().parents[4]
CORE = Path(outrider.master.core.__file__).parent
MODULES = [path for path in CORE.rglob("*.py") if path.relative_to(CORE).parts[0] not in ("ps", "k8s")]
SPEAKERS = ("announce", "begin", "_note", "_lost", "member_lost", "_take_blame")


def _announced_kinds() -> set[str]:
    kinds = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in SPEAKERS:
                    texts = [a.value for arg in node.args for a in ast.walk(arg) if isinstance(a, ast.Constant)]
                    kinds |= {t for t in texts if isinstance(t, str) and re.fullmatch(r"([A-Z][a-z]+){2,}", t)}
    return kinds


def test_every_kind_of_event_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "events.md").read_text()
    documented = set(re.findall(r"([A-Z][a-z]+(?:[A-Z][a-z]+)+)", page))
    assert len(_announced_kinds()) > 40
    assert _announced_kinds() - documented == set()


def test_nobody_asks_whether_a_job_is_a_ps_job_but_who_makes_one() -> None:
    """What is different there, properties of a task's JobSpec say (`ps.tf_config.task_spec`)."""
    assert {path.name for path in MODULES if re.search(r"\bis_ps\b", path.read_text())} == {"job_kinds.py", "spec.py"}


def test_every_event_and_every_message_has_its_handler() -> None:
    assert set(HANDLERS) == set(Event.__args__)  # type: ignore[attr-defined]
    assert set(MESSAGES) | {Hello} == set(FromSidecar.__args__)  # type: ignore[attr-defined]


def test_every_deadline_that_is_set_has_its_handler() -> None:
    source = "\n".join(path.read_text() for path in MODULES)
    used = set(re.findall(r"deadlines\.set\(\(\"([a-z ]+)\"", source))
    assert used == set(DEADLINES)
