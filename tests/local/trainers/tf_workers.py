"""A TensorFlow job without parameter servers: a small Keras model, MultiWorkerMirroredStrategy, and a checkpoint that
the script itself writes and loads. At some steps it waits for a file, so that a test knows when it hurts it."""

EVERY, GATES, LAST = 20, (30, 70), 100
SCRIPT = f"""
import json, os, sys, time
from pathlib import Path

CONFIG = json.loads(os.environ["TF_CONFIG"])
import tensorflow as tf

FOLDER, INDEX = Path(sys.argv[1]), CONFIG["task"]["index"]
TRACE = (FOLDER / f"rows-{{INDEX}}-{{os.getpid()}}.jsonl").open("a", buffering=1)


def say(**row):
    TRACE.write(json.dumps({{"index": INDEX, "generation": os.environ["OUTRIDER_GENERATION"], **row}}) + "\\n")


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    made = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, made=made)
place = FOLDER / ("model" if INDEX == 0 else f"temporary-{{INDEX}}")  # all have to save, and one's counts
manager = tf.train.CheckpointManager(checkpoint, str(place), max_to_keep=3)
latest = tf.train.latest_checkpoint(FOLDER / "model")
if latest:
    checkpoint.restore(latest)
say(config=CONFIG, begins=int(made.numpy()), replicas=strategy.num_replicas_in_sync)


@tf.function
def train():
    def step():
        x = tf.random.normal([16, 8])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss

    loss = strategy.reduce("MEAN", strategy.run(step), axis=None)
    made.assign_add(1)
    return loss


while made.numpy() < {LAST}:
    loss, at = float(train()), int(made.numpy())
    say(step=at, loss=loss)
    if at % {EVERY} == 0:
        manager.save()
    while at in {GATES} and not (FOLDER / f"go-{{at}}").exists():
        time.sleep(0.02)
"""
