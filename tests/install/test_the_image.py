"""What the image is made of is pinned, and `make image` writes an overlay that injects what it has pushed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PINNED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
}
DIGEST = "sha256:" + 64 * "a"
TOOL = """#!/bin/sh
echo "$*" >>"$RECORD"
[ "$1" = build ] || { shift 1; [ "$1" = --digestfile ] && printf %s "$DIGEST" >"$2"; }
exit 0
"""


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> set[tuple[str, frozenset[str]]]:
    if (name, extras) not in seen:
        seen.add((name, extras))
        for text in distribution(name).requires or ():
            other = Requirement(text)
            wanted = ({"extra": extra} for extra in (*extras, ""))
            if other.marker is None or any(other.marker.evaluate(each) for each in wanted):
                needed(canonicalize_name(other.name), frozenset(other.extras), seen)
    return seen


def test_every_package_of_the_image_is_pinned_and_what_builds_ours() -> None:
    names = {name for name, _ in needed("outrider", frozenset({"kubernetes"}), set())} - {"outrider"}
    assert names | {"setuptools"} <= set(PINNED)
    assert "aiohttp" in names


def made(tmp_path: Path, image: str, **settings: str) -> tuple[dict[str, object], str]:
    """The overlay of a copy of the manifests, and what the tool was asked to do."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests", ignore=shutil.ignore_patterns("image"))
    tool, record = tmp_path / "tool", tmp_path / "record"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    told = {**os.environ, "TOOL": str(tool), "RECORD": str(record), "DIGEST": DIGEST, **settings}
    subprocess.run([tmp_path / "manifests" / "image.sh", image], check=True, capture_output=True, env=told)
    overlay = (tmp_path / "manifests" / "overlays" / "image" / "kustomization.yaml").read_text()
    return yaml.safe_load(overlay), record.read_text()


def test_the_overlay_names_what_was_pushed(tmp_path: Path) -> None:
    overlay, asked = made(tmp_path, "registry.example:5000/team/sidecar:1.2")
    (image,) = overlay["images"]  # type: ignore[misc]
    assert image["newName"] == "registry.example:5000/team/sidecar"
    assert image["digest"] == DIGEST
    assert (
        overlay["replacements"]
        == yaml.safe_load((ROOT / "manifests" / "kustomization.yaml").read_text())["replacements"]
    )
    build, push = asked.splitlines()
    assert build.startswith("build -f")
    assert push.endswith("registry.example:5000/team/sidecar:1.2")


def test_an_image_that_stays_here_is_named_by_its_tag(tmp_path: Path) -> None:
    overlay, asked = made(tmp_path, "registry.example:5000/sidecar", PUSH="no", BASE="python@sha256:1")
    (image,) = overlay["images"]  # type: ignore[misc]
    assert (image["newName"], image["newTag"]) == ("registry.example:5000/sidecar", "latest")
    (build,) = asked.splitlines()
    assert "--build-arg BASE=python@sha256:1" in build


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders the overlay")
def test_kubectl_renders_it_with_one_image_and_its_secret(tmp_path: Path) -> None:
    made(tmp_path, "registry.example/sidecar:1", PULL_SECRET="ours")
    folder = tmp_path / "manifests" / "overlays" / "image"
    text = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True).stdout
    deployments = [each for each in yaml.safe_load_all(text) if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for deployment in deployments:
        pod = deployment["spec"]["template"]["spec"]
        told = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert pod["containers"][0]["image"] == told["OUTRIDER_IMAGE"] == f"registry.example/sidecar@{DIGEST}"
        assert pod["imagePullSecrets"] == [{"name": told["OUTRIDER_PULL_SECRET"]}] == [{"name": "ours"}]
