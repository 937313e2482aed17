"""Kubernetes quantities (`1.5Gi`, `500M`, `128974848`, `1e9`) in whole units, such as bytes of memory."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_SHAPE = re.compile(r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30}))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?", re.ASCII)
_SUFFIXES = {
    **{"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_BINARY = ("Gi", "Mi", "Ki")


def parsed(quantity: object) -> int | None:
    """The quantity in whole units, possibly negative, rounded up as by the API server; None if it is not valid."""
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        return None
    found = _SHAPE.fullmatch(str(quantity))
    if found is None:
        return None
    number, suffix = found.groups()
    factor = _SUFFIXES[suffix or ""] if (suffix or "") in _SUFFIXES else Decimal(10) ** int(suffix[1:])
    return int((Decimal(number) * factor).to_integral_value(ROUND_CEILING))


def written(amount: int) -> str:
    """The shortest exact form: `8Gi`, `1536Mi`, else plain bytes."""
    for suffix in _BINARY:
        unit = int(_SUFFIXES[suffix])
        if amount and amount % unit == 0:
            return f"{amount // unit}{suffix}"
    return str(amount)
