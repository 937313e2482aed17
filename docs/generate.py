"""Fills the pages of the site that come from the code: a hook of MkDocs (mkdocs.yml).

A page holds a marker, `<!-- generated: NAME -->`, where its generated part belongs; the text around it is written by
hand. Links to files of the repository that are not pages become plain text, since the site does not hold them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)


# -- the command line ----------------------------------------------------------------------------------------------
def command_line() -> str:
    """Every command with its arguments and options, as click knows them."""
    from outrider.cli.main import main

    return "\n".join(_command("outrider", main, None))


def _command(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name if parent is None else name.split()[-1], parent=parent)
    if parent is not None:
        yield f"{'#' * (len(name.split()) + 1)} `{name}`\n"
        yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield f"{_prose(command.help or '')}\n"
    options = [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]
    if rows := [_option(each, context) for each in options if "--help" not in each.opts]:
        yield "| option | what it does |\n| --- | --- |"
        yield from rows
        yield ""
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _command(f"{name} {each}", found, context)


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    flags = [each for each in (*option.opts, *option.secondary_opts) if "_" not in each]
    flags.sort(key=len)  # -n before --namespace
    takes = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    return f"| `{_cell(', '.join(flags) + takes, is_code=True)}` | {_cell(record[1] if record else option.help)} |"


# -- the ElasticJob ------------------------------------------------------------------------------------------------
def elastic_job() -> str:
    """Every field of the ElasticJob, from the schema of its CustomResourceDefinition."""
    definition = yaml.safe_load((ROOT / "manifests/base/elasticjobs.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    lines = []
    for part in ("spec", "status"):
        lines += [f"## {part}\n", f"{_prose(schema[part].get('description', ''))}\n"]
        lines += ["| field | type | default | limits | what it is |\n| --- | --- | --- | --- | --- |"]
        lines += [*_fields(schema[part], part), ""]
    lines += ["## Columns of `kubectl get elasticjobs`\n", "| column | field |\n| --- | --- |"]
    lines += [f"| {each['name']} | `{each['jsonPath']}` |" for each in version["additionalPrinterColumns"]]
    return "\n".join(lines)


def _fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        yield from _field(f"{path}.{name}", field, name in required)
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from _fields(more, f"{path}.ROLE" if more.get("properties") else path)
    if isinstance(items := schema.get("items"), dict):
        yield from _fields(items, f"{path}[]")


def _field(path: str, field: dict[str, Any], is_required: bool) -> Iterator[str]:
    default = field.get("default")
    shown = "" if default is None or default == {} else f"`{_plain(default)}`"
    limits = ["required"] if is_required else []
    limits += [f"one of {', '.join(f'`{_plain(each)}`' for each in field['enum'])}"] if "enum" in field else []
    known = (("minimum", "at least {}"), ("maximum", "at most {}"), ("minLength", "at least {} characters"),
             ("maxLength", "at most {} characters"), ("minItems", "at least {} entries"),
             ("maxItems", "at most {} entries"), ("minProperties", "at least {} entries"))  # fmt: skip
    limits += [text.format(field[key]) for key, text in known if key in field]
    items = field.get("items", {})
    limits += [f"each {text.format(items[key])}" for key, text in known if key in items]
    cells = (f"`{path}`", _type(field), shown, ", ".join(limits), field.get("description", ""))
    yield f"| {' | '.join(_cell(each) for each in cells)} |"
    yield from _fields(field, path)


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "duration" if "ms" in field.get("pattern", "") else "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- pages that lie elsewhere --------------------------------------------------------------------------------------
def architecture() -> str:
    """ARCHITECTURE.md, whose links begin at the top of the repository."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    moved = _outside_of_code(text, lambda part: LINK.sub(_from_the_top, part))
    return moved.split("\n", 1)[1]


def _from_the_top(link: re.Match[str]) -> str:
    text, target = link.groups()
    return link.group() if re.match(r"[a-z]+:|#", target) else f"[{text}](../../{target})"


GENERATED: dict[str, Callable[[], str]] = {
    "cli": command_line,
    "elasticjob": elastic_job,
    "architecture": architecture,
}


# -- MkDocs ---------------------------------------------------------------------------------------------------------
def on_config(config: Any) -> Any:
    """Puts each decision into the navigation, so that a new one needs no second line."""
    config["nav"] = [_with_decisions(each) for each in config["nav"]]
    return config


def _with_decisions(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {name: _with_decisions(below) for name, below in entry.items()}
    if isinstance(entry, list):
        return [_with_decisions(each) for each in entry]
    if entry == "adr/":
        return ["adr/README.md", *(f"adr/{each.name}" for each in sorted((DOCS / "adr").glob("[0-9]*.md")))]
    return entry


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The text of a page with its generated parts, and without links that leave the site."""
    filled = MARKER.sub(lambda found: GENERATED[found.group(1)](), markdown)
    filled = re.sub(r"^\|.*", _with_plain_pipes, filled, flags=re.MULTILINE)
    folder = (DOCS / page.file.src_uri).parent
    return _outside_of_code(filled, lambda part: LINK.sub(lambda link: _within_the_site(link, folder), part))


def _within_the_site(link: re.Match[str], folder: Path) -> str:
    """A link to a file of the repository that is not a page becomes its text; a file that is missing stays a link."""
    text, target = link.groups()
    if re.match(r"[a-z]+:|#", target):
        return link.group()
    name, hash_sign, anchor = target.partition("#")
    path = Path(os.path.normpath(folder / name))
    path = DOCS / "explanation/architecture.md" if path == ROOT / "ARCHITECTURE.md" else path
    if path.is_relative_to(DOCS):
        return f"[{text}]({os.path.relpath(path, folder)}{hash_sign}{anchor})"
    return text if path.exists() else link.group()


def _with_plain_pipes(row: re.Match[str]) -> str:
    """Within code, GitHub wants the pipes of a table's cell escaped, and Python-Markdown shows the backslash."""
    return re.sub(r"`[^`]+`", lambda code: code.group().replace("\\|", "|"), row.group())


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in FENCED.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _prose(text: str) -> str:
    """Paragraphs as one line each; a help text has two spaces of indentation and marks of click."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(_escaped(" ".join(each.split())) for each in paragraphs)


def _cell(text: object, *, is_code: bool = False) -> str:
    line = " ".join(str(text).split()).replace("|", "\\|")
    return line if is_code else _escaped(line)


def _escaped(text: str) -> str:
    """Words such as <job> are no HTML, and a * in a cron expression is no emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        each if each.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", each.replace("<", "&lt;")) for each in parts
    )
