"""The commands of the documents that a cluster can execute, as they are written there (`tests.documented`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.cluster import LONG
from tests.cluster.test_example import data
from tests.documented import ROOT, blocks, pages_that_run

pytestmark = pytest.mark.xdist_group("digits")
"""The example's volume is one folder of the nodes, so no two jobs of it run at a time."""


@pytest.mark.parametrize("page", pages_that_run("cluster"), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_says(page: Path, namespace: str, tmp_path: Path) -> None:
    """In order, in one shell at the top of the repository, whose kubectl has this test's namespace for its own."""
    shutil.rmtree(data(), ignore_errors=True)
    found = blocks(page)
    for block in found:
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    for name in ("examples", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {**os.environ, "KUBECONFIG": str(config_for(namespace, tmp_path))}
    script = "".join(f"# {block.where}\n{block.text}" for block in found if block.tag == "run: cluster")
    done = subprocess.run(
        ["bash", "-euxc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"


def config_for(namespace: str, folder: Path) -> Path:
    """The kubeconfig of the tests, with another namespace where a command names none."""
    command = ("kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "yaml")
    config = yaml.safe_load(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for each in config["contexts"]:
        each["context"]["namespace"] = namespace
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path
