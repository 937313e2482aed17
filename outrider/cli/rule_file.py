"""Reads the file of `outrider run --rules` and `outrider rules`: an ElasticJob, or the part with its rules.

Accepted are `rules: [...]`, `recovery: {rules: [...]}`, the list alone, and a whole ElasticJob.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outrider.cli.errors import UserError
from outrider.master.core.k8s.elasticjob import rules as elasticjob_rules
from outrider.master.core.spec import Rule


def rules_of(path: Path) -> tuple[Rule, ...]:
    """The rules in a file; a UserError says what is wrong with them."""
    import yaml  # late, because most runs have no such file

    from outrider.cli.kube import yaml as kube_yaml
    from outrider.master.core.k8s.elasticjob import schema

    try:
        with path.open(encoding="utf-8") as file:
            documents = kube_yaml.read(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise UserError(f"{path}: must be YAML or JSON: {reason}") from error
    if len(documents) > 1:
        raise UserError(f"{path}: must have one YAML document, but has {len(documents)}")
    rules = _found(documents[0] if documents else None)
    if not rules:
        raise UserError(
            f"{path}: must have rules, as `rules: [{{logPattern: ..., action: replace}}]` or as spec.recovery.rules of "
            f"an ElasticJob"
        )
    by_schema = schema.objections(rules, "recovery.rules", schema.RULES)
    if wrong := next(iter(by_schema or elasticjob_rules.objections({"rules": rules}, "recovery")), None):
        raise UserError(f"{path}: {wrong}")
    return elasticjob_rules.parsed(rules)


def _found(document: Any) -> list[Any] | None:
    """The list of rules, at whatever depth it is."""
    for key in ("spec", "recovery", "rules"):
        if isinstance(document, dict):
            document = document.get(key, document)
    if isinstance(document, list) and all(isinstance(rule, dict) for rule in document):
        return document
    return None


def about_nodes(rules: tuple[Rule, ...]) -> list[str]:
    """Warnings about rules that have no effect on a single machine."""
    found = [number for number, rule in enumerate(rules, 1) if rule.taint or rule.condition[0]]
    return [f"rule {number} is about nodes of a cluster and has no effect on this machine" for number in found]
