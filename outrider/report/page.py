"""The report as one HTML file, which needs no network and runs no script but its own.

The template escapes every value. The file's Content-Security-Policy allows its one script and its one style sheet by
their hashes and nothing else, so that markup which got in all the same would not run.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import outrider
from outrider.report import drawing, words
from outrider.report.advice import advice
from outrider.report.faults import faults
from outrider.report.job import Sources, job_of
from outrider.report.summary import sentences

EVENTS_SHOWN = 200
GENERATIONS_SHOWN = 100
SCRIPTS, STYLES = ("timeline.js", "page.js"), ("colours.css", "report.css")
SHARED = ("timeline.js", "colours.css")
"""The files that the dashboard serves too."""


def report(sources: Sources, now: float) -> str:
    """The report of a job at a Unix time. It is made whatever the documents are."""
    job = job_of(sources, now)
    script, style = ("\n".join(map(_asset, names)) for names in (SCRIPTS, STYLES))
    return str(
        _template().render(
            job=job,
            now=now,
            version=outrider.__version__,
            summary=sentences(job, now),
            account=drawing.account(job.account),
            advice=advice(job),
            still=drawing.still(job),
            curves=drawing.curves(job),
            legend=drawing.legend(job.timeline),
            data=drawing.data(job),
            faults=faults(job),
            generations=job.timeline.generations[-GENERATIONS_SHOWN:],
            events=job.events[-EVENTS_SHOWN:],
            style=Markup(style),
            script=Markup(script),
            policy=_policy(script, style),
        )
    )


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text()


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "seconds": words.seconds, "percent": words.percent, "utc": words.utc, "rfc3339": words.rfc3339,
        "counted": words.counted, "short": "{:.4g}".format,
    }  # fmt: skip
    return environment.from_string(_asset("report.html"))


def _policy(script: str, style: str) -> str:
    allowed = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
