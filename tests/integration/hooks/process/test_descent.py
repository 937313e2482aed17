"""Endings, run in a process of their own as subreaper, so that the test's own children are safe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]

STAGE = """
import json, os, signal, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from training_hooks.process import tree
assert tree.adopt_orphans()

def start(code, *more):
    '''A python child that has said "up" before this returns.'''
    child = subprocess.Popen([sys.executable, "-c", code, *more], stdout=subprocess.PIPE, text=True)
    return child.pid, child.stdout.readline().split()

def alive(pid):
    try:
        return open("/proc/%d/stat" % pid).read().split(") ")[1][0] != "Z"
    except OSError:
        return False

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
"""


def act(script: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", STAGE + script, str(ROOT)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_rank_without_a_handler_ends_by_sigterm_at_once() -> None:
    seen = act("""
pid, _ = start(SLEEP)
ending = tree.Ending([pid], grace=300)
while ending.step() is not None: time.sleep(0.005)
print(json.dumps({"status": ending.statuses[pid], "killed": ending.killed, "alive": alive(pid)}))
""")
    assert seen == {"status": 15, "killed": 0, "alive": False}


def test_a_rank_that_catches_sigterm_is_given_its_own_grace() -> None:
    seen = act("""
code = '''
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(7)))
print("up", flush=True)
while True: time.sleep(1)
'''
pid, _ = start(code)
ending = tree.Ending([pid], grace=0.0, handler_grace=300)
while ending.step() is not None: time.sleep(0.005)
print(json.dumps({"code": os.WEXITSTATUS(ending.statuses[pid]), "killed": ending.killed}))
""")
    assert seen == {"code": 7, "killed": 0}


def test_a_rank_that_ignores_sigterm_or_is_frozen_is_killed_after_the_grace() -> None:
    seen = act("""
deaf, _ = start("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP)
frozen, _ = start(SLEEP)
os.kill(frozen, signal.SIGSTOP)
assert os.WIFSTOPPED(os.waitpid(frozen, os.WUNTRACED)[1])
ending = tree.Ending([deaf, frozen], grace=0.1)
while ending.step() is not None: time.sleep(0.005)
print(json.dumps({"statuses": [ending.statuses[deaf], ending.statuses[frozen]], "killed": ending.killed}))
""")
    assert seen == {"statuses": [9, 9], "killed": 2}


def test_processes_of_a_killed_rank_end_with_it_even_in_their_own_session() -> None:
    seen = act("""
code = '''
import subprocess, sys, time
deep = "sleep 600 & echo $!; wait"
child = subprocess.Popen(["sh", "-c", deep], stdout=subprocess.PIPE, text=True, start_new_session=True)
print("up", child.pid, child.stdout.readline(), flush=True)
time.sleep(600)
'''
pid, words = start(code)
others = [int(word) for word in words[1:]]
os.kill(pid, signal.SIGKILL)
before = [alive(other) for other in others]
killed = tree.end([pid])
print(json.dumps({"before": before, "after": [alive(other) for other in others], "killed": killed,
                  "left": tree.descendants(os.getpid())}))
""")
    assert seen == {"before": [True, True], "after": [False, False], "killed": 0, "left": []}


def test_a_rank_inside_a_save_may_finish_it_and_the_others_are_ended() -> None:
    seen = act("""
saver, _ = start(SLEEP)
other, _ = start(SLEEP)
saving = {saver}
ending = tree.Ending([saver, other], save_grace=500, is_saving=saving.__contains__)
while alive(other): ending.step(); time.sleep(0.005)
for _ in range(20): ending.step()
during = alive(saver)
saving.clear()
while ending.step() is not None: time.sleep(0.005)
print(json.dumps({"during": during, "after": alive(saver), "killed": ending.killed}))
""")
    assert seen == {"during": True, "after": False, "killed": 0}


def test_a_save_that_never_ends_is_bounded() -> None:
    seen = act("""
saver, _ = start(SLEEP)
ending = tree.Ending([saver], save_grace=30, is_saving=lambda pid: True)
ending.step(now=1000.0); first = alive(saver)
ending.step(now=1029.0); second = alive(saver)
ending.step(now=1030.5)
while ending.step(now=1031.0) is not None: time.sleep(0.005)
print(json.dumps({"alive": [first, second, alive(saver)]}))
""")
    assert seen == {"alive": [True, True, False]}


def test_kept_processes_live_on_with_their_children() -> None:
    seen = act("""
code = "import subprocess as s, time; print('up', s.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
kept, words = start(code)
below = int(words[1])
rank, _ = start(SLEEP)
tree.end([rank], keep=[kept])
result = {"rank": alive(rank), "kept": alive(kept), "below": alive(below)}
tree.end([kept, below])
result["later"] = [alive(kept), alive(below)]
print(json.dumps(result))
""")
    assert seen == {"rank": False, "kept": True, "below": True, "later": [False, False]}


def test_a_whole_command_gets_sigterm_at_every_depth() -> None:
    seen = act("""
code = '''
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[1], "w").write("saved"), sys.exit(0)))
print("up", flush=True)
while True: time.sleep(1)
'''
import tempfile
path = os.path.join(tempfile.mkdtemp(), "mark")
command = ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, code, path]
shell = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
shell.stdout.readline()
killed = tree.end([shell.pid], grace=300, handler_grace=300, whole=True)
print(json.dumps({"mark": open(path).read(), "killed": killed, "left": tree.descendants(os.getpid())}))
""")
    assert seen == {"mark": "saved", "killed": 0, "left": []}


def test_a_root_that_was_exiting_by_itself_may_exit_and_is_reported() -> None:
    seen = act("""
left = os.fork()
if left == 0: os._exit(7)
os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
other, _ = start(SLEEP)
ending = tree.Ending([left, other], had_left={left: "leaving", other: ""}.__getitem__)
while ending.step() is not None: time.sleep(0.005)
print(json.dumps({"by_itself": {str(pid == left): status >> 8 for pid, status in ending.by_itself.items()}}))
""")
    assert seen == {"by_itself": {"True": 7}}


def test_a_root_that_does_not_exit_in_time_is_ended_as_any_other() -> None:
    seen = act("""
stuck, _ = start(SLEEP)
ending = tree.Ending([stuck], had_left=lambda pid: "leaving")
now = time.monotonic()
first = ending.step(now)
untouched = stuck not in ending._deadlines
while ending.step(now + 1) is not None: time.sleep(0.005)
print(json.dumps({"untouched": untouched, "alive": alive(stuck), "by_itself": len(ending.by_itself)}))
""")
    assert seen == {"untouched": True, "alive": False, "by_itself": 0}


def test_nothing_to_end_is_done_at_once() -> None:
    assert act("print(json.dumps({'pause': tree.Ending([]).step()}))") == {"pause": None}
