"""What the example's model has learned: its loss on clicks that nobody trains on, always the same ones.

UNDISTURBED is what runs to which nothing happened had after STEPS steps: the example's processes alone, each started
with its TF_CONFIG and without Outrider, a chief, 2 workers and 2 ps, with pauses of 0 and 0.02 s in turns. No two of
them are the same, for workers overtake each other. The bound is three times as far from their mean as the farthest. A
test that uses it shows what lies outside: the model that lost half of what it learned, that of one parameter server
(0.82). An early checkpoint is none: after 50 steps the loss may be that of the end (0.5737 was seen).

    python tests/cluster/held_out.py model.ckpt-1000     prints the loss, and that of the same model with one half lost
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

EXAMPLE = Path(__file__).parents[2] / "examples/ps/click.py"
STEPS = 1000
UNDISTURBED = (0.57352, 0.57237, 0.57208, 0.57277, 0.57148)
SPREAD = 3 * max(abs(loss - mean(UNDISTURBED)) for loss in UNDISTURBED)
WORKER, BATCH, BATCHES = 1000, 4096, 16
"""The example's evaluator is the worker of this number, too."""


def losses(*checkpoints: Path) -> list[tuple[float, float]]:
    """Of each, and with the half of one of two parameter servers as it begins. TensorFlow has a process of its own."""
    command = [sys.executable, __file__, *map(str, checkpoints)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [(whole, half) for whole, half in map(json.loads, done.stdout.splitlines())]


def is_undisturbed(loss: float) -> bool:
    return abs(loss - mean(UNDISTURBED)) <= SPREAD


def _main(*checkpoints: str) -> None:
    import tensorflow.compat.v1 as tf

    spec = importlib.util.spec_from_file_location("click_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    tf.disable_eager_execution()
    rows = tf.data.make_initializable_iterator(example.clicks(WORKER, BATCH).take(BATCHES))
    loss = example.loss_of(rows.get_next(), 2)
    lost = tf.variables_initializer(tf.global_variables()[::2])  # they are given to the servers in turn
    with tf.Session() as session:

        def measured() -> float:
            session.run(rows.initializer)
            return mean(float(session.run(loss)) for _ in range(BATCHES))

        for checkpoint in checkpoints:
            tf.train.Saver().restore(session, checkpoint)
            whole = measured()
            session.run(lost)
            print(json.dumps([round(whole, 5), round(measured(), 5)]), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
