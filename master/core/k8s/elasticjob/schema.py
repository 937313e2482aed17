"""What is wrong with the spec of an ElasticJob by the schema of its CustomResourceDefinition.

The API server goes by the same one before it asks a webhook. Here it holds offline too, and where the API server has an
older one or none. What a schema cannot say stands in `k8s.elasticjob.cross_field`, which may rely on this. Durations
and amounts of memory are read by `k8s.values.durations` and `quantities`, in words of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from outrider.master.core.k8s.values.fields import mapping, shown, whole
from outrider.master.core.k8s.values.names import Document

MOST_TOLD: Final = 20
"""Sentences about one document. Its user mends some and asks again."""


# -- the schema, as the API server reads it -------------------------------------------------------------------------
def _spec() -> Document:
    definition = yaml.safe_load((resources.files(__package__) / "elasticjobs.yaml").read_text(encoding="utf-8"))
    spec: Document = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


SPEC: Final = _spec()
RULES: Final[Document] = SPEC["properties"]["recovery"]["properties"]["rules"]
for _closed in (RULES["items"], SPEC["properties"]["metrics"]):
    _closed["additionalProperties"] = False  # what is dropped in silence elsewhere would make another rule of them


def _pattern(_validator: object, pattern: str, value: object, schema: Document) -> Iterator[ValidationError]:
    """A user's own pattern never comes here. The API server's `$` fits at the end alone."""
    if "type" in schema and isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError("")


def _elsewhere(*_: object) -> Iterator[ValidationError]:
    """`anyOf` stands where a whole number or a text may be, `minProperties` where a role has to be."""
    return iter(())


_Validator = extend(
    Draft202012Validator,
    {"pattern": _pattern, "anyOf": _elsewhere, "minProperties": _elsewhere},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many({
        "integer": lambda _checker, value: whole(value) is not None,
        "number": lambda _checker, value: whole(value) is not None or (isinstance(value, float) and value == value),
    }),
)  # fmt: skip


def _without_nulls(value: object) -> object:
    """Null is what was left out."""
    if isinstance(value, dict):
        return {str(name): _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


# -- in sentences ---------------------------------------------------------------------------------------------------
def objections(value: object, path: str = "spec", schema: Document = SPEC) -> list[str]:
    """Sentences that begin with the path of a field, each once; of many the first."""
    found: dict[str, None] = {}
    for error in _Validator(schema).iter_errors(_without_nulls(value)):
        found |= dict.fromkeys(_sentences(error, path))
        if len(found) >= MOST_TOLD:
            break
    return list(found)[:MOST_TOLD]


def _sentences(error: ValidationError, path: str) -> Iterator[str]:
    found: Any = error.instance
    schema = mapping(error.schema)
    at = path + "".join(f"[{each}]" if isinstance(each, int) else f".{shown(each)}" for each in error.absolute_path)
    fields = mapping(schema.get("properties"))
    match error.validator:
        case "required":
            missing = (name for name in schema["required"] if name not in found)
            yield from (f"{at}.{name}: it is missing; it must be {allowed(fields[name])}" for name in missing)
        case "additionalProperties":
            known = f"there {'is' if len(fields) == 1 else 'are'} {', '.join(fields)}"
            yield from (
                f"{at}.{shown(name)}: there is no such field; {known}" for name in sorted(found.keys() - fields)
            )
        case "maxItems":
            yield f"{at}: there are {len(found)} entries, and {schema['maxItems']} may be there"
        case "maxLength":
            yield f"{at}: it has {len(found)} characters, and may have {schema['maxLength']}"
        case _:
            is_none = whole(found) == 0 and at.startswith("spec.replicaSpecs.") and at.endswith(".replicas")
            hint = "; spec.suspend: true lets all members go" if is_none else ""
            yield f"{at}: {shown(found)} must be {allowed(schema)}{hint}"


def allowed(schema: Document) -> str:
    """What a value may be."""
    if words := schema.get("enum"):
        *first, last = map(_written, words)
        return f"{', '.join(first)} or {last}"
    kind, example = schema["type"], f", as {schema['example']}" if "example" in schema else ""
    span = "".join(f" {word} {schema[key]}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in schema)
    if kind == "object":
        return " with ".join(filter(None, ["an object", ", ".join(schema.get("properties", ()))])) + example
    if kind == "array":
        return f"a list, and each entry {allowed(schema['items'])}"
    if "maxLength" in schema:
        least = f"{schema['minLength']} to" if "minLength" in schema else "at most"
        span = f" of {least} {schema['maxLength']} characters"
    words = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a text"}
    return f"{words[kind]}{span}{example}"


def _written(word: object) -> str:
    """As it stands in YAML."""
    return word if isinstance(word, str) and word.lower() not in ("true", "false") else json.dumps(word)
