"""A token of the cluster with which the masters' /metrics may be read."""

from __future__ import annotations

import contextlib
from functools import cache

from measure.pods import kubectl

NAME, SYSTEM = "outrider-benchmarks", "outrider-system"


@cache
def token() -> str:
    """Makes the account that it is of, where there is none."""
    account, binding = f"{SYSTEM}:{NAME}", ("clusterrolebinding", NAME, "--clusterrole=outrider-metrics-reader")
    for made in (("-n", SYSTEM, "create", "serviceaccount", NAME), ("create", *binding, f"--serviceaccount={account}")):
        with contextlib.suppress(RuntimeError):  # it is there
            kubectl(*made)
    return kubectl("-n", SYSTEM, "create", "token", NAME, "--duration=24h").strip()
