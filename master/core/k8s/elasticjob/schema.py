"""Validation of an ElasticJob's spec by the schema of its CustomResourceDefinition.

The API server applies the same schema before it calls a webhook. This check also holds offline, and if the API server
has an older schema or none. `k8s.elasticjob.cross_field` has the rules that a schema cannot express, and relies on this
check. Durations and amounts of memory are checked there, by `k8s.values.durations` and `quantities`.
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

from outrider.master.core.k8s.values.field_errors import forbidden, invalid, required, too_long, too_many, unsupported
from outrider.master.core.k8s.values.fields import mapping, shown, whole
from outrider.master.core.k8s.values.names import Document

MOST_ERRORS: Final = 20
"""Maximum number of field errors for one document. The user fixes them and applies it again."""


# -- the schema, as the API server reads it -------------------------------------------------------------------------
def _spec() -> Document:
    text = (resources.files(__package__) / "elasticjobs.yaml").read_text(encoding="utf-8")
    definition = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # the first takes a tenth of the time
    spec: Document = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


SPEC: Final = _spec()
RULES: Final[Document] = SPEC["properties"]["recovery"]["properties"]["rules"]
for _closed in (RULES["items"], SPEC["properties"]["metrics"]):
    _closed["additionalProperties"] = False  # an ignored field would change the meaning of the rule


def _pattern(_validator: object, pattern: str, value: object, schema: Document) -> Iterator[ValidationError]:
    """Matches as the API server does, whose `$` matches only at the end; no user's own pattern comes here."""
    if "type" in schema and isinstance(value, str) and not re.fullmatch(pattern, value):
        yield ValidationError("")


def _elsewhere(*_: object) -> Iterator[ValidationError]:
    """Nothing: `cross_field` checks integer-or-string fields (`anyOf`) and missing roles (`minProperties`)."""
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
    """The value without nulls, which count as missing."""
    if isinstance(value, dict):
        return {str(name): _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


# -- field errors ---------------------------------------------------------------------------------------------------
def objections(value: object, path: str = "spec", schema: Document = SPEC) -> list[str]:
    """Field errors without duplicates, at most `MOST_ERRORS`."""
    found: dict[str, None] = {}
    for error in _Validator(schema).iter_errors(_without_nulls(value)):
        found |= dict.fromkeys(_errors(error, path))
        if len(found) >= MOST_ERRORS:
            break
    return list(found)[:MOST_ERRORS]


def _errors(error: ValidationError, path: str) -> Iterator[str]:
    found: Any = error.instance
    schema = mapping(error.schema)
    at = path + "".join(f"[{each}]" if isinstance(each, int) else f".{shown(each)}" for each in error.absolute_path)
    fields: Document = mapping(schema.get("properties"))
    match error.validator:
        case "required":
            missing = (name for name in schema["required"] if name not in found)
            yield from (required(f"{at}.{name}", f"must be {allowed(fields[name])}") for name in missing)
        case "additionalProperties":
            known = f"unknown field; known fields: {', '.join(fields)}"
            yield from (forbidden(f"{at}.{shown(name)}", known) for name in sorted(found.keys() - fields))
        case "maxItems":
            yield too_many(at, len(found), schema["maxItems"])
        case "maxLength":
            yield too_long(at, schema["maxLength"])
        case "pattern":
            example = f", for example {schema['example']}" if "example" in schema else ""
            yield invalid(at, found, f"must match {schema['pattern']}{example}")
        case "enum":
            yield unsupported(at, found, schema["enum"])
        case _:
            is_none = whole(found) == 0 and at.startswith("spec.replicaSpecs.") and at.endswith(".replicas")
            hint = "; set spec.suspend: true to release all members" if is_none else ""
            yield invalid(at, found, f"must be {allowed(schema)}{hint}")


def allowed(schema: Document) -> str:
    """What a value must be, by its schema: the end of `must be …`."""
    if words := schema.get("enum"):
        *first, last = map(_written, words)
        return f"{', '.join(first)} or {last}"
    kind, example = schema["type"], f", for example {schema['example']}" if "example" in schema else ""
    least, most = schema.get("minimum"), schema.get("maximum")
    span = "" if least is None else f" of at least {least}" if most is None else f" between {least} and {most}"
    if kind == "object":
        return " with ".join(filter(None, ["an object", ", ".join(schema.get("properties", ()))])) + example
    if kind == "array":
        return f"a list with each entry {allowed(schema['items'])}"
    if "maxLength" in schema:
        shortest = f"{schema['minLength']} to" if "minLength" in schema else "at most"
        span = f" of {shortest} {schema['maxLength']} characters"
    words = {"boolean": "true or false", "integer": "an integer", "number": "a number", "string": "a string"}
    return f"{words[kind]}{span}{example}"


def _written(word: object) -> str:
    """The value as in YAML."""
    return word if isinstance(word, str) and word.lower() not in ("true", "false") else json.dumps(word)
