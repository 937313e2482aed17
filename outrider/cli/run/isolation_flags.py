"""`--isolate`, `--member-cpus`, `--member-memory`: what each member of a local job gets of its own."""

from __future__ import annotations

import click

from outrider.cli.errors import UserError
from outrider.master.core import quantities
from outrider.master.local.sandbox.cgroups import Limits

LEAST_CPUS, LEAST_MEMORY = 0.01, 32 << 20
"""The kernel's least quota, and less memory than a Python needs to begin."""


def cpus(_context: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """The callback of --member-cpus."""
    if value is not None and not value >= LEAST_CPUS:
        raise click.BadParameter(f"{value:g}: a member needs {LEAST_CPUS} cpus or more")
    return value


def memory(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """The callback of --member-memory: bytes."""
    if value is None:
        return None
    size = quantities.parsed(value)
    if size is None:
        raise click.BadParameter(f"{value!r} is no amount of memory; it may be 512Mi, 1.5Gi or a number of bytes")
    if size < LEAST_MEMORY:
        raise click.BadParameter(f"{value}: a member needs {quantities.written(LEAST_MEMORY)} or more")
    return size


def limits(isolate: bool, cpus: float | None, memory: int | None) -> Limits | None:
    """What was asked for; None where members are not isolated."""
    if not isolate:
        given = [flag for flag, value in (("--member-cpus", cpus), ("--member-memory", memory)) if value is not None]
        if given:
            raise UserError(f"{given[0]}: only an isolated member can be limited; give --isolate too")
        return None
    from outrider.master.local.sandbox.isolation import check_tools  # late: only who isolates waits for asyncio
    from outrider.master.local.sandbox.namespaces import IsolationError

    try:
        check_tools()
    except IsolationError as impossible:
        raise UserError(f"--isolate: {impossible}") from impossible
    return Limits(cpus, memory)
