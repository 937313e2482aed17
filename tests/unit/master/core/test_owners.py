"""Each part of the State is changed in one room alone; whoever else wants it changed calls a verb of the part's, or of
that room's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import outrider.master.core as core

OWNERS = {
    "nodecheck": ["nodecheck"], "hangs": ["hangs"], "rules": ["faults"], "exclusion": ["faults"], "faults": ["faults"],
    "progress": ["generation"], "checkpoints": ["checkpoints"], "status": ["status", "handlers"],
    "earlier": ["membership"], "membership": ["membership"], "placement": ["placement"], "lease": ["membership"],
    "links": ["network"], "scaling": ["scaling"], "metrics": ["scaling"],
}  # fmt: skip
EVERYTHING = ["status/persist.py", "ps/tasks.py"]
"""A new master takes over all of it; tasks are made with what they share."""
MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "setdefault", "sort", "update",
}  # fmt: skip


def changed(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                for each in targets:
                    yield from each.elts if isinstance(each, ast.Tuple) else [each]
            case ast.AugAssign(target=target):
                yield target
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in MUTATORS:
                yield value


def parts(function: ast.AST) -> Iterator[str]:
    """Those that it changes, also by a name that it gives to something in one."""
    known = {each.targets[0].id: path(each.value) for each in ast.walk(function)
             if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)}  # fmt: skip
    for each in changed(function):
        names = path(each)
        names = [*known.get(names[0], names[:1]), *names[1:]] if len(names) > 1 else names
        if "state" in names[:2] and names[-1] != "state":
            yield names[names.index("state") + 1]


def path(of: ast.expr) -> list[str]:
    """`task.state.faults.incident` in its names."""
    match of:
        case ast.Attribute(value=value, attr=name):
            return [*path(value), name]
        case ast.Subscript(value=value):
            return [*path(value), "[]"]
        case ast.Name(id=name):
            return [name]
    return []


def test_a_part_of_the_state_is_changed_in_its_own_room_alone() -> None:
    folder = Path(core.__path__[0])
    strangers = [
        f"{path.relative_to(folder)}:{function.lineno} changes state.{part}"
        for path in folder.rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and str(path.relative_to(folder)) not in EVERYTHING
        for part in parts(function)
        if path.relative_to(folder).parts[0] not in OWNERS.get(part, [path.relative_to(folder).parts[0]])
    ]
    assert not strangers
