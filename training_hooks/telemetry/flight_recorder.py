"""The last collectives of this process, from PyTorch's Flight Recorder, which is on by default.

They are read on request, and now and then for a window of steps (`telemetry.step_window`): a full record takes 20 ms
and has a megabyte. A thread does it, because the main thread is the one that hangs. The thread starts with the first
process group; by then the process has threads anyway.
"""

import os
import pickle
import select
import sys
import threading
import time
import zlib

from . import activity, stacks

OF_ALL = "default_pg"
RECORDER, OF_NCCL = "_dump_fr_trace", "_dump_nccl_trace"
"""Names of gloo's recorder and of NCCL's own: torch for CUDA has two."""
LOOK = 0.05
"""Seconds between two checks of the listening thread while a save request waits."""
MOST_GROUPS, MOST_SIZES = 32, 16
"""Most process groups in an answer, and most tensors of one collective: an answer is one datagram."""


def record(stacks=True, recorders=(RECORDER, OF_NCCL)):
    """The recorders' entries as dicts, oldest first, and the ranks of the process groups by name, if known; both are
    empty if this torch has no recorder. Without stacks it takes 13 ms instead of 20."""
    native, entries, ranks = sys.modules.get("torch._C._distributed_c10d"), [], {}
    for name in recorders:
        dump = getattr(native, name, None)
        if dump is not None:
            found = pickle.loads(
                dump(includeCollectives=True, includeStackTraces=stacks, onlyActive=False)
            )  # written by torch here
            own = sorted(found.get("entries", ()), key=lambda entry: entry.get("record_id", 0))
            entries += _in_order(own) if name == OF_NCCL else own
            ranks.update(_ranks_by_group(found.get("pg_config")))
    entries.sort(key=lambda entry: entry.get("time_created_ns", 0))
    return entries, ranks


def _group(entry):
    """Key of an entry's group and backend: in a group with several backends each numbers its own collectives."""
    return (entry.get("process_group") or ("",))[0], entry.get("profiling_name", "").partition(":")[0]


def _in_order(entries):
    """Marks NCCL's finished entries. Its collectives of one group end in call order, but the parts of a coalesced one
    are never marked as finished themselves."""
    ended = set()
    for entry in reversed(entries):
        if not entry.get("is_p2p"):
            if _group(entry) in ended:
                entry["retired"] = True
            elif entry.get("retired"):
                ended.add(_group(entry))
    return entries


def _ranks_by_group(groups):
    """{name: ranks}; the recorder writes ranks as text, `[0, 2]`."""
    found = {}
    for name, about in groups.items() if isinstance(groups, dict) else ():
        ranks = [int(each) for each in str(about.get("ranks", "")).strip("[] ").split(",") if each.strip().isdigit()]
        if ranks:
            found[about.get("name") or name] = ranks
    return found


def _place(frames):
    """`file:line function` of the deepest frame outside of torch."""
    for frame in frames or ():
        if "/torch/" not in frame.get("filename", ""):
            return "%s:%s %s" % (frame.get("filename"), frame.get("line"), frame.get("name"))
    return ""


def summary(entry, now_ns):
    """One entry in the form that users read. `age`: seconds since the call."""
    group = entry.get("process_group") or ("", "")
    return {
        "seq": entry.get("collective_seq_id"),
        "op": entry.get("profiling_name", ""),
        "state": "completed" if entry.get("retired") else entry.get("state", ""),
        "sizes": entry.get("input_sizes", [])[:MOST_SIZES],
        "dtypes": entry.get("input_dtypes", [])[:MOST_SIZES],
        "group": group[1] or group[0],
        "frame": _place(entry.get("frames")),
        "age": round(max(0, now_ns - entry.get("time_created_ns", now_ns)) / 1e9, 6),
    }


def last(entries):
    """The most informative entry: the oldest unfinished one, else the newest."""
    unfinished = [entry for entry in entries if not entry.get("retired")]
    return (unfinished or entries[-1:] or [None])[0]


def by_group(entries, ranks, now_ns):
    """The most informative entry of each process group, unfinished ones first. Sends and receives are left out: their
    numbers differ between ranks. The members of the default group are left out too: thousands of ranks would each
    repeat them."""
    groups = {}
    for entry in entries:
        if not entry.get("is_p2p"):
            groups.setdefault(_group(entry), []).append(entry)
    chosen = [(group, last(own)) for group, own in groups.items()]
    chosen.sort(key=lambda each: bool(each[1].get("retired")))
    summaries = [(group, summary(entry, now_ns)) for group, entry in chosen[:MOST_GROUPS]]
    found = []
    for (name, backend), about in summaries:
        members = {"ranks": ranks[name]} if name in ranks and about["group"] != OF_ALL else {}
        found.append(dict(about, id=(name + " " + backend).strip(), **members))
    return found


def answer(worker):
    words, (entries, ranks) = worker.page.words, record()
    chosen, now_ns = last(entries), time.time_ns()
    return {
        "rank": int(os.environ.get("RANK", worker.local_rank)),
        "local_rank": worker.local_rank,
        "pid": os.getpid(),
        "step": words[5],
        "phase": worker.phase_name(),
        "collective": summary(chosen, now_ns) if chosen else None,
        "groups": by_group(entries, ranks, now_ns),
        "left": bool(entries) and _has_left(),
        "frames": _frames(),
        "store": _number("MASTER_PORT"),
    }


def _has_left():
    """Whether no process group exists; a process that has called collectives has then destroyed it."""
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and not is_initialized()


def _frames():
    """A number that changes when the main thread is at another place."""
    frame, places = sys._current_frames().get(threading.main_thread().ident), []
    while frame is not None and len(places) < stacks.MOST_FRAMES:
        places.append("%s:%s" % (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return zlib.crc32(" ".join(places).encode(errors="replace"))


def _number(name):
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def _name_thread():
    """Names this thread for the kernel, so that its CPU time does not count as work of the rank (`activity`)."""
    try:
        with open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as file:
            file.write(activity.OWN)
    except OSError:
        pass


def _serve(worker, channel):
    _name_thread()
    sampler, waiting = worker.sampler, select.poll()
    waiting.register(channel, select.POLLIN)
    while True:
        is_requested = worker.mover is not None and worker.mover.waits
        happened = waiting.poll(1000 * (LOOK if is_requested else sampler.pause()))
        if any(event != select.POLLIN for _, event in happened):  # the channel is closed
            return
        message = channel.hear() if happened else None
        if message and message.get("ask") in ANSWERS:
            _answer(worker, channel, message.get("order"), ANSWERS[message["ask"]])
        if worker.mover is not None:
            worker.mover.hear(message or {})
        try:
            sampler.look(_without_stacks)
        except Exception:  # only this window is lost
            pass


def _without_stacks():
    """Entries without NCCL's. With NCCL a rank waits for others not in a collective but at the next use of a result
    (`loss.item()`), so the time to the first collective would blame the ranks that wait."""
    try:
        return record(stacks=False, recorders=(RECORDER,))[0]
    except Exception:  # a recorder of an unknown version counts as absent
        return []


ANSWERS = {"collectives": answer, "stacks": lambda worker: {"stack": stacks.text()}}


def _answer(worker, channel, order, body_of):
    try:
        body = body_of(worker)
    except Exception as error:  # a recorder of an unknown version: report it, never end the thread
        body = {"local_rank": worker.local_rank, "error": "%s: %s" % (type(error).__name__, error)}
    channel.send("up", {"answer": order, "local_rank": worker.local_rank, "body": body})


def listen(worker):
    """Starts the thread once in a process."""
    channel = worker.channel
    if channel is None or worker.listening:
        return
    worker.listening = True
    channel.bind(str(worker.local_rank))
    threading.Thread(target=_serve, args=(worker, channel), name="outrider", daemon=True).start()
