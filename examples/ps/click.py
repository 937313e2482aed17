"""A wide and deep model of who clicks on what, trained between graphs with parameter servers, as tf.train has it.

Nothing in it knows of Outrider: the task stands in TF_CONFIG, whoever has set it. Users, items and clicks are made up
as they are needed, by rules that the model is to find; each worker has its own, and none comes twice.

    python click.py --model /data/model --steps 2000
"""

import argparse
import json
import os
import time

import tensorflow.compat.v1 as tf

USERS, ITEMS, CROSSES, NUMBERS = 1000, 500, 5000, 8
HIDDEN = 4


def flags():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="folder of the checkpoints, which all members share")
    parser.add_argument("--steps", type=int, default=2000, help="global steps, of all workers together")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    return parser.parse_args()


# -- data -------------------------------------------------------------------------------------------------------------
def clicks(worker, batch):
    """Batches of this worker, for ever."""

    def made(number):
        draw = tf.random.stateless_uniform
        seed = [tf.stack([worker * 10 + which, tf.cast(number, tf.int32)]) for which in range(4)]
        user = draw([batch], seed[0], maxval=USERS, dtype=tf.int32)
        item = draw([batch], seed[1], maxval=ITEMS, dtype=tf.int32)
        numbers = tf.random.stateless_normal([batch, NUMBERS], seed[2])
        tastes = tf.gather(tf.random.stateless_normal([USERS, HIDDEN], [1, 1]), user)
        kinds = tf.gather(tf.random.stateless_normal([ITEMS, HIDDEN], [2, 2]), item)
        weights = tf.random.stateless_normal([NUMBERS], [3, 3])
        logit = tf.reduce_sum(tastes * kinds, 1) + tf.linalg.matvec(numbers, weights)
        clicked = tf.cast(draw([batch], seed[3]) < tf.sigmoid(logit), tf.float32)
        return {"user": user, "item": item, "numbers": numbers, "clicked": clicked}

    return tf.data.Dataset.range(2**31 - 1).map(made, num_parallel_calls=1).prefetch(2)


# -- model ------------------------------------------------------------------------------------------------------------
def dense(name, x, size, activation=None):
    w = tf.get_variable(f"{name}/w", [x.shape[1], size], initializer=tf.glorot_uniform_initializer())
    y = x @ w + tf.get_variable(f"{name}/b", [size], initializer=tf.zeros_initializer())
    return activation(y) if activation else y


def looked_up(name, rows, size, ids, servers):
    """Rows of a table that is spread over the parameter servers."""
    table = tf.get_variable(name, [rows, size], partitioner=tf.fixed_size_partitioner(servers),
                            initializer=tf.random_normal_initializer(stddev=0.05))  # fmt: skip
    return tf.nn.embedding_lookup(table, ids)


def loss_of(rows, servers):
    """The wide half knows pairs by heart, the deep one what users and items are like."""
    cross = tf.math.floormod(rows["user"] * 31 + rows["item"], CROSSES)
    wide = looked_up("cross", CROSSES, 1, cross, servers) + dense("wide", rows["numbers"], 1)
    tables = [looked_up("user", USERS, 16, rows["user"], servers), looked_up("item", ITEMS, 16, rows["item"], servers)]
    hidden = dense("hidden1", tf.concat([*tables, rows["numbers"]], 1), 64, tf.nn.relu)
    logit = tf.squeeze(wide + dense("deep", dense("hidden2", hidden, 32, tf.nn.relu), 1), 1)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=rows["clicked"], logits=logit))


# -- training ---------------------------------------------------------------------------------------------------------
def train(args, cluster, server, role, index):
    me, servers = f"/job:{role}/task:{index}", cluster.num_tasks("ps")
    number = 0 if role == "chief" else index + 1
    with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
        rows = tf.data.make_one_shot_iterator(clicks(number, args.batch)).get_next()
        loss, step = loss_of(rows, servers), tf.train.get_or_create_global_step()
        learn = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=step)
    is_chief = role == "chief" or (index == 0 and "chief" not in cluster.jobs)
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=is_chief, checkpoint_dir=args.model, hooks=[tf.train.StopAtStepHook(args.steps)],
        config=tf.ConfigProto(device_filters=["/job:ps", me]), save_checkpoint_steps=args.save_every,
        save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
    ) as session:  # fmt: skip
        mean = 0.0
        while not session.should_stop():
            value, at, _ = session.run([loss, step, learn])
            mean = 0.95 * mean + 0.05 * value if mean else value
            print(f"global_step: {at} loss: {mean:.4f}", flush=True)
            time.sleep(args.pause)
    print(f"{role} {index} has trained to the end", flush=True)


def evaluate(args):
    """Each checkpoint once, on clicks that nobody trains on."""
    rows = tf.data.make_one_shot_iterator(clicks(1000, 4096)).get_next()
    loss, seen = loss_of(rows, 1), -1
    saver = tf.train.Saver()
    with tf.Session() as session:
        while seen < args.steps:
            path = tf.train.latest_checkpoint(args.model)
            if path and int(path.rpartition("-")[2]) > seen:
                seen = int(path.rpartition("-")[2])
                saver.restore(session, path)
                print(f"evaluated: {seen} loss: {session.run(loss):.4f}", flush=True)
            time.sleep(1.0)


def main():
    args, config = flags(), json.loads(os.environ["TF_CONFIG"])
    role, index = config["task"]["type"], config["task"]["index"]
    print(f"{role} {index} of {json.dumps(config['cluster'])}", flush=True)
    tf.disable_eager_execution()
    if role == "evaluator":
        evaluate(args)
        return
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.train.Server(cluster, job_name=role, task_index=index)
    if role == "ps":
        server.join()
    train(args, cluster, server, role, index)


if __name__ == "__main__":
    main()
