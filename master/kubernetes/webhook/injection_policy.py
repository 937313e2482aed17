"""Builds the injection policy for all pods from the replica's settings and the API server's version."""

from __future__ import annotations

from outrider.master.core.k8s.injection.sidecar import Policy
from outrider.master.kubernetes.api.client import Api
from outrider.master.kubernetes.settings import Settings

NATIVE_SIDECARS_SINCE = (1, 29)


def policy_of(settings: Settings, public_key: str, native_sidecar: bool) -> Policy:
    return Policy(
        image=settings.image,
        pull_policy=settings.pull_policy,
        endpoint=settings.endpoint,
        public_key=public_key,
        native_sidecar=native_sidecar,
        pull_secret=settings.pull_secret,
        alone_after=settings.alone_after,
    )


async def has_native_sidecars(api: Api) -> bool:
    version = await api.get("/version")
    return version_of(version) >= NATIVE_SIDECARS_SINCE


def version_of(document: dict[str, object]) -> tuple[int, int]:
    """The version as (major, minor); a provider's `27+` counts as 27."""
    numbers = [str(document.get(name, "0")).rstrip("+") for name in ("major", "minor")]
    major, minor = (int(number) if number.isdigit() else 0 for number in numbers)
    return major, minor
