"""Real TensorFlow jobs with parameter servers, of both styles, judged by what their own processes wrote."""

from __future__ import annotations

import json
from typing import Any

from tests.lines import whole_lines
from tests.local.training import Training, until

SAVE_EVERY = 50
COMMON = f"""
import json, os, sys, time
from pathlib import Path

FOLDER, EVERY = Path(sys.argv[1]), {SAVE_EVERY}
CONFIG = json.loads(os.environ["TF_CONFIG"])
ROLE, INDEX = CONFIG["task"]["type"], CONFIG["task"]["index"]
TRACE = (FOLDER / f"rows-{{ROLE}}-{{os.getpid()}}.jsonl").open("a", buffering=1)


def say(**row):
    TRACE.write(json.dumps({{"role": ROLE, "index": INDEX, "pid": os.getpid(), "time": time.time(), **row}}) + "\\n")


def is_over():
    return (FOLDER / "end").exists()
"""
SESSIONS = (
    "import numpy as np\nimport tensorflow.compat.v1 as tf\n"
    + COMMON
    + """
say(config=CONFIG, worker={name: value for name, value in os.environ.items() if name.startswith("WORKER_")})
if ROLE == "evaluator":
    while not is_over():
        say(evaluated=tf.train.latest_checkpoint(FOLDER / "model"))
        time.sleep(0.2)
    sys.exit(0)
tf.disable_eager_execution()
cluster = tf.train.ClusterSpec(CONFIG["cluster"])
server = tf.train.Server(cluster, job_name=ROLE, task_index=INDEX)
if ROLE == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(worker_device=f"/job:{ROLE}/task:{INDEX}", cluster=cluster)):
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None])
    w = tf.get_variable("w", [8, 1])
    loss = tf.reduce_mean((tf.squeeze(x @ w) - y) ** 2)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
config = tf.ConfigProto(device_filters=["/job:ps", f"/job:{ROLE}/task:{INDEX}"])
rng = np.random.default_rng(INDEX)
while ROLE == "worker" and not list((FOLDER / "model").glob("*.index")):
    time.sleep(0.1)  # or its session would look again after half a minute
with tf.train.MonitoredTrainingSession(
    master=server.target, is_chief=ROLE == "chief", checkpoint_dir=str(FOLDER / "model"), config=config,
    save_checkpoint_steps=EVERY, save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
) as session:
    while not session.should_stop() and not is_over():
        a = rng.normal(size=(16, 8)).astype("f")
        value, at, _ = session.run([loss, step, train], {x: a, y: a.sum(1)})
        say(step=int(at), loss=float(value))
        time.sleep(0.02)
"""
)
COORDINATOR = (
    "import tensorflow as tf\n"
    + COMMON
    + """
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
say(config=CONFIG, worker={name: value for name, value in os.environ.items() if name.startswith("WORKER_")})
if ROLE in ("worker", "ps"):
    tf.distribute.Server(resolver.cluster_spec(), job_name=ROLE, task_index=INDEX, protocol="grpc").join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    w, made = tf.Variable(tf.zeros([8, 1])), tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(w=w, made=made)
manager = tf.train.CheckpointManager(checkpoint, str(FOLDER / "model"), max_to_keep=3)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)


@tf.function
def train():
    x = tf.random.normal([16, 8])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
    made.assign_add(1)
    return loss


saved = int(made.numpy())
while not is_over():
    losses = [coordinator.schedule(train) for _ in range(10)]
    coordinator.join()
    at = int(made.numpy())
    say(step=at, loss=float(losses[-1].fetch()))
    if at - saved >= EVERY:
        manager.save()
        saved = at
    time.sleep(0.02)
"""
)


class PsTraining(Training):
    """One job from its command to its end."""

    def rows(self, role: str) -> list[dict[str, Any]]:
        """What processes of a role wrote, in the order of time."""
        found = []
        for path in self.folder.glob(f"rows-{role}-*.jsonl"):
            found += map(json.loads, whole_lines(path))
        return sorted(found, key=lambda row: float(row["time"]))

    def steps_of(self, role: str, after: float = 0.0) -> list[dict[str, Any]]:
        return [row for row in self.rows(role) if "step" in row and row["time"] > after]

    def steps_on(self, role: str, after: float, count: int = 20) -> list[dict[str, Any]]:
        """Waits until it has made so many steps after a moment."""

        def made() -> list[dict[str, Any]] | None:
            self.assert_goes_on()
            rows = self.steps_of(role, after)
            return rows if len(rows) >= count else None

        return until(made, lambda: f"{count} steps of {role}: {self.story()}", 180)

    def at(self, role: str, index: int = 0) -> dict[str, Any]:
        """Who has a rank index now."""

        def running() -> dict[str, Any] | None:
            rows = (m for m in self.status()["members"] if (m["role"], m["rank_index"]) == (role, index))
            return next((m for m in rows if m["state"] == "running" and m["pids"]["workers"]), None)

        return until(running, f"{role} {index}", 180)

    def pid(self, role: str, index: int = 0) -> int:
        return int(self.at(role, index)["pids"]["workers"][0])

    def told_config(self, role: str) -> dict[str, Any]:
        """What its newest process was told."""
        return next((row for row in reversed(self.rows(role)) if "config" in row), {})
