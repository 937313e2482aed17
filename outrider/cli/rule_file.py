"""A file with rules, for `outrider run --rules` and `outrider rules`. It is an ElasticJob, or the part of it that has
them.

Accepted are `rules: [...]`, `recovery: {rules: [...]}`, the list alone, and an ElasticJob with all that it has beside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outrider.cli.errors import UserError
from outrider.master.core.k8s.elasticjob import rules as elasticjob_rules
from outrider.master.core.spec import Rule


def rules_of(path: Path) -> tuple[Rule, ...]:
    """UserError says what is wrong with them."""
    import yaml  # here, because most runs have no such file

    from outrider.cli.kube import yaml as kube_yaml
    from outrider.master.core.k8s.elasticjob import schema

    try:
        with path.open(encoding="utf-8") as file:
            documents = kube_yaml.read(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise UserError(f"{path}: it cannot be read as YAML or JSON: {reason}") from error
    if len(documents) > 1:
        raise UserError(f"{path}: it has {len(documents)} YAML documents; rules are read from a file with one")
    rules = _found(documents[0] if documents else None)
    if not rules:
        raise UserError(
            f"{path}: there are no rules; write them as `rules: [{{logPattern: ..., action: replace}}]`, or as "
            f"spec.recovery.rules of an ElasticJob"
        )
    by_schema = schema.objections(rules, "recovery.rules", schema.RULES)
    if wrong := next(iter(by_schema or elasticjob_rules.objections({"rules": rules}, "recovery")), None):
        raise UserError(f"{path}: {wrong}")
    return elasticjob_rules.parsed(rules)


def _found(document: Any) -> list[Any] | None:
    """The list, however deep it lies."""
    for key in ("spec", "recovery", "rules"):
        if isinstance(document, dict):
            document = document.get(key, document)
    if isinstance(document, list) and all(isinstance(rule, dict) for rule in document):
        return document
    return None


def about_nodes(rules: tuple[Rule, ...]) -> list[str]:
    """Sentences about rules that nothing on one machine meets."""
    found = [number for number, rule in enumerate(rules, 1) if rule.taint or rule.condition[0]]
    return [f"rule {number} is about nodes of a cluster, and there are none here" for number in found]
