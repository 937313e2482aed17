"""Parses `--scaling`: a policy that finds the best size of the job, or a schedule that sets it.

`throughput,min-gain=0.3,cooldown=60` is a policy with settings, `schedule; 0 8 * * 1-5 = 2; 0 20 * * * = 8` a schedule.
Its entries are separated by semicolons, because cron expressions contain commas.
"""

from __future__ import annotations

from outrider.cli.run.flag_values import SpecFields
from outrider.master.core.k8s.values import durations
from outrider.master.core.scaling.schedule import is_zone, problem
from outrider.master.core.spec import EFFICIENCY, SCHEDULE, THROUGHPUT, Entry

SETTINGS = {"min-gain": "min_gain", "cooldown": "scale_cooldown", "evaluation": "scale_evaluation"}
"""Names of the settings in the flag, and the fields of a JobSpec that they set."""
EXAMPLE = "as in 'schedule; zone=Europe/Berlin; 0 8 * * 1-5 = 2; 0 20 * * * = 8'"


def parsed(text: str) -> SpecFields:
    if text.partition(";")[0].strip() == SCHEDULE:
        return _by_the_clock([part.strip() for part in text.split(";")[1:]])
    policy, *settings = (part.strip() for part in text.split(","))
    if policy not in (THROUGHPUT, EFFICIENCY):
        raise ValueError(f"policy {policy!r}: must be one of {THROUGHPUT}, {EFFICIENCY}, {SCHEDULE}")
    found: dict[str, str | float] = {"scaling": policy}
    for setting in settings:
        name, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or name not in SETTINGS:
            raise ValueError(f"setting {setting!r}: must be one of {', '.join(f'{each}=' for each in SETTINGS)}")
        if SETTINGS[name] in found:
            raise ValueError(f"{name}: must be given only once")
        found[SETTINGS[name]] = _gain(value) if name == "min-gain" else _seconds(name, value)
    return found


def _by_the_clock(parts: list[str]) -> SpecFields:
    found: list[Entry] = []
    zone = "UTC"
    for part in filter(None, parts):
        left, _, right = (each.strip() for each in part.rpartition("="))
        if left == "zone":
            zone = _zone(right)
        else:
            found.append(_entry(part, left, right))
    if not found:
        raise ValueError(f"must have at least one entry, {EXAMPLE}")
    return {"scaling": SCHEDULE, "schedule": tuple(found), "time_zone": zone}


def _zone(name: str) -> str:
    if not is_zone(name):
        raise ValueError(f"zone={name!r}: must be a time zone, such as Europe/Berlin; without it UTC is used")
    return name


def _entry(part: str, cron: str, members: str) -> Entry:
    wrong = problem(cron)
    if wrong:
        raise ValueError(f"{part!r}: must be CRON = N, {EXAMPLE}: {wrong}")
    if not members.isdecimal() or int(members) < 1:
        raise ValueError(f"{part!r}: {members!r} must be a whole number of members from 1 on")
    return Entry(cron, int(members))


def _gain(text: str) -> float:
    try:
        gain = float(text)
    except ValueError:
        gain = -1.0
    if not 0 <= gain <= 1:
        raise ValueError(f"min-gain={text!r}: must be from 0 (any gain) to 1 (linear growth)")
    return gain


def _seconds(name: str, text: str) -> float:
    seconds = durations.parsed(text)
    if seconds is None:
        raise ValueError(f"{name}={text!r}: must be {durations.ALLOWED}")
    return seconds
