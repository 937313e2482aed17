"""The probe of the node check: runs one round in a disposable process, and writes JSON results.

It is a child of the template, which has imported torch, or a fresh Python beside a launcher. It opens its port before
anything that takes time, measures every local device in a process of its own (the slowest counts), then the all-gather,
which is measured per member, not per rank. It prints nothing, and every failure is a result.

The fault `bad-node` (`outrider chaos`, or armed) makes its process die as on a broken machine; `bad-node=slow` makes it
take five times as long.
"""

import json
import os
import select
import signal
import sys
import time

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _folder]
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    importlib.import_module("_outrider_hooks.nodecheck.probe").main()

ORDER = "OUTRIDER_CHECK"
BAD_NODE = "bad-node"
LONGEST_ERROR = 300


def main():
    """Entry point of a fresh Python: the order is in the environment, with the descriptor for the results."""
    settings = json.loads(os.environ.pop(ORDER))
    run(settings["order"], settings["pipe"], settings["volume"])


def run(order, pipe, volume):
    """Measures, writes the results and ends this process."""
    try:
        silence()
        os.write(pipe, json.dumps(findings(order, volume)).encode())
    finally:
        os._exit(0)


def silence():
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)


def findings(order, volume):
    from ..chaos import base as chaos_base
    from . import allgather

    began = time.monotonic()
    chaos = chaos_of(chaos_base.of_member(volume, os.environ, BAD_NODE))
    if chaos == "fails":
        os.kill(os.getpid(), signal.SIGKILL)
    others = [Other(rank, chaos) for rank in range(1, order["nproc"])] if order["compute"] else []
    found = {"result": "ok", "error": "", "kind": "", "compute": 0.0, "cpu": 0.0, "held_up": 0.0, "peers": []}
    meeting = None
    try:
        meeting = allgather.Meeting(order)
        meeting.meet()
        if order["compute"]:
            measured = [of_device(0, chaos)] + [other.wait(began + order["seconds"]) for other in others]
            found.update(slowest(measured))
        if found["result"] == "ok":
            found["peers"] = meeting.gather()
            if order["alone"]:
                found["peers"].append(with_itself(order))
    except allgather.PortInUse as error:
        found.update(result="port taken", error=str(error))
    except OSError as error:
        found.update(result="failed", error=allgather.reason(error, 0.0)[:LONGEST_ERROR])
    finally:
        if meeting is not None:
            meeting.close()
    found["elapsed"] = time.monotonic() - began
    return found


def chaos_of(fault):
    return (fault.partition(":")[0].partition("=")[2] or "fails") if fault else ""


def with_itself(order):
    from . import allgather

    try:
        return {"member": order["member"], "seconds": allgather.alone(order["address"]), "error": ""}
    except OSError as error:
        return {"member": order["member"], "seconds": 0.0, "error": allgather.reason(error, allgather.GATHER_SECONDS)}


def of_device(local_rank, chaos):
    from . import matmul

    try:
        kind, wall, cpu, held_up = matmul.measure(local_rank, chaos)
    except matmul.Wrong as error:
        return {"result": "wrong", "error": str(error)[:LONGEST_ERROR]}
    except Exception as error:  # a driver, a library and memory each raise their own types
        return {"result": "failed", "error": ("%s: %s" % (type(error).__name__, error))[:LONGEST_ERROR]}
    return {"result": "ok", "kind": kind, "compute": wall, "cpu": cpu, "held_up": held_up}


def slowest(measured):
    for rank, each in enumerate(measured):
        if each["result"] != "ok":
            return dict(each, error="local rank %d: %s" % (rank, each.get("error", "")))
    kinds = sorted({each["kind"] for each in measured})
    worst = max(measured, key=lambda each: each["compute"])
    most = {name: max(each[name] for each in measured) for name in ("cpu", "held_up")}
    return dict(worst, kind=" and ".join(kinds), **most)


class Other:
    """Another local device, measured by a process of its own."""

    def __init__(self, local_rank, chaos):
        self.local_rank = local_rank
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                from ..process import tree

                tree.prctl(tree.PR_SET_PDEATHSIG, signal.SIGKILL)
                os.write(writing, json.dumps(of_device(local_rank, chaos)).encode())
            finally:
                os._exit(0)
        os.close(writing)

    def wait(self, until):
        ready, _, _ = select.select([self.reading], [], [], max(0.0, until - time.monotonic()))
        data = os.read(self.reading, 65536) if ready else b""
        os.close(self.reading)
        if not ready:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        if data:
            return json.loads(data.decode())
        return {"result": "died" if ready else "too slow", "error": how_it_ended(status) if ready else ""}


def how_it_ended(status):
    if os.WIFSIGNALED(status):
        return "its process was killed by %s" % signal.Signals(os.WTERMSIG(status)).name
    return "its process ended with code %d" % os.WEXITSTATUS(status)
