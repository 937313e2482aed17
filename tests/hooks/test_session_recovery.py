"""A session of real TensorFlow that has lost its parameter server, and whose close waits for it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os, signal, subprocess, sys, time
import tensorflow.compat.v1 as tf
from tensorflow.python.training import monitored_session
from training_hooks import session_recovery

PS = '''
import sys
import tensorflow.compat.v1 as tf
server = tf.train.Server(tf.train.ClusterSpec({"ps": ["127.0.0.1:0"]}), job_name="ps", task_index=0)
print(server.target, flush=True)
server.join()
'''
session_recovery.let_go(lambda: True, monitored_session)
tf.disable_eager_execution()
ps = subprocess.Popen([sys.executable, "-c", PS], stdout=subprocess.PIPE, text=True)
try:
    address = ps.stdout.readline().strip().removeprefix("grpc://")
    cluster = tf.train.ClusterSpec({"ps": [address], "worker": ["127.0.0.1:0"]})
    server = tf.train.Server(cluster, job_name="worker", task_index=0)
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        count = tf.assign_add(step, 1)
    closes = []

    class Creator(tf.train.ChiefSessionCreator):
        made = 0

        def create_session(self):
            Creator.made += 1
            os.kill(ps.pid, signal.SIGCONT)
            return super().create_session()

    class Loses(tf.train.SessionRunHook):
        def after_run(self, context, values):
            if Creator.made == 1:
                closes.append(context.session)
                os.kill(ps.pid, signal.SIGSTOP)
                raise tf.errors.UnavailableError(None, None, "the ps is away")

    with tf.train.MonitoredSession(Creator(master=server.target), hooks=[Loses()]) as session:
        session.run(count)
    print("sessions", Creator.made, "closed", closes[0]._closed, flush=True)
finally:
    ps.kill()
"""


def test_another_session_is_made_while_the_close_of_the_one_before_still_waits() -> None:
    """The ps is stopped until the next session is asked for: without that it would be waited for, for ever."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, check=False)
    assert "sessions 2 closed True" in done.stdout, done.stderr[-3000:]
