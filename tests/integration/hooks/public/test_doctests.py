"""The examples in the docstrings of the public names run as written, in a process without a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import Warm

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("plain torch")]  # they share a warm Python
RUN = """
import doctest, sys
import training_hooks

def examples():
    finder = doctest.DocTestFinder(exclude_empty=False)
    checkpoint, migrator, Sampler = training_hooks.checkpoint, training_hooks.migrator, training_hooks.ElasticSampler
    for module in (training_hooks, checkpoint, migrator):
        yield from finder.find(module, module.__name__)
    yield from finder.find(checkpoint.CheckpointError, checkpoint.__name__ + ".CheckpointError", module=False)
    yield from finder.find(Sampler, "ElasticSampler", module=False)

runner = doctest.DocTestRunner()
wanted = set("ElasticSampler ElasticSampler.state_dict ElasticSampler.load_state_dict".split())
for module in ("checkpoint", "migrator"):
    public = getattr(training_hooks, module)
    names = getattr(public, "__all__", ["MigrationError", "register", "listening", "load_ckpt"])
    wanted |= {"%s.%s" % (public.__name__, name) for name in names}
for each in examples():
    if each.examples:
        runner.run(each)
        wanted.discard(each.name)
print("failed:", runner.summarize(verbose=False).failed, "without an example:", sorted(wanted))
"""


def test_all_public_examples_run(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RUN)
    done = warm.run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("failed: 0 without an example: []\n"), done.stdout
