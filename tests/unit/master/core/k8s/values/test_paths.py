"""Paths of the HTTP API: names that would lead elsewhere are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.master.core.k8s.values.paths import NotAPath, folder, named


def test_a_path_is_that_of_the_api() -> None:
    assert folder("v1", "pods", "team-a") == "/api/v1/namespaces/team-a/pods"
    assert folder("apps/v1", "statefulsets") == "/apis/apps/v1/statefulsets"
    of_job = folder("outrider.dev/v1alpha1", "elasticjobs", "team-a")
    assert named(of_job, "train", "status") == "/apis/outrider.dev/v1alpha1/namespaces/team-a/elasticjobs/train/status"


@pytest.mark.parametrize(
    "version", ["", "v", "v0", "V1", "apps/", "/v1", "apps/v1/x", "apps/v1?", "a b/v1", "../v1", "v1%2F"]
)
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(NotAPath, match="must be the version and plural of an API, such as 'apps/v1'"):
        folder(version, "pods", "a")


@given(st.text(max_size=20))
def test_a_name_stays_one_segment_or_is_refused(name: str) -> None:
    above = folder("v1", "pods", "a")
    try:
        path = named(above, name)
    except NotAPath:
        assert name in ("", ".", "..") or "/" in name or "%" in name
    else:
        segment = path.removeprefix(f"{above}/")
        assert segment not in ("", ".", "..")
        assert not set("/?# ") & set(segment)
        assert "%2F" not in segment
