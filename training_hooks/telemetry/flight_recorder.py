"""What this process did last in its process groups, from PyTorch's Flight Recorder, which is on by default.

Asked on demand, and for a window of steps now and then (`telemetry.step_window`): a full record is 20 ms and a
megabyte. A thread does it, because the main thread is where the hang is; it starts with the first process group, by
when the process has threads anyway.
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
"""gloo's, and NCCL's own: torch for CUDA has two."""
LOOK = 0.05
"""Seconds between two looks of the listening thread while the rank is asked to save its state."""
MOST_GROUPS, MOST_SIZES = 32, 16
"""Process groups, and tensors of one collective, that an answer tells of: it is a datagram."""


def record(stacks=True, recorders=(RECORDER, OF_NCCL)):
    """The recorders' entries as dicts, oldest first, and the ranks of the process groups by name, where they know them;
    nothing where this torch has no recorder. Without stacks it takes 13 ms, not 20."""
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
    """Of a process group with several backends each numbers its collectives by itself."""
    return (entry.get("process_group") or ("",))[0], entry.get("profiling_name", "").partition(":")[0]


def _in_order(entries):
    """NCCL's collectives of one group end in the order of their calls. Those that a coalesced one consists of are never
    said to be over by themselves."""
    ended = set()
    for entry in reversed(entries):
        if not entry.get("is_p2p"):
            if _group(entry) in ended:
                entry["retired"] = True
            elif entry.get("retired"):
                ended.add(_group(entry))
    return entries


def _ranks_by_group(groups):
    """{name: ranks}; the recorder writes them as text, `[0, 2]`."""
    found = {}
    for name, about in groups.items() if isinstance(groups, dict) else ():
        ranks = [int(each) for each in str(about.get("ranks", "")).strip("[] ").split(",") if each.strip().isdigit()]
        if ranks:
            found[about.get("name") or name] = ranks
    return found


def _place(frames):
    """`file:line function` of the deepest frame outside torch."""
    for frame in frames or ():
        if "/torch/" not in frame.get("filename", ""):
            return "%s:%s %s" % (frame.get("filename"), frame.get("line"), frame.get("name"))
    return ""


def summary(entry, now_ns):
    """One entry, as users read it. `age`: seconds since it was called."""
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
    """The one that says most: the oldest that is not over, else the newest."""
    unfinished = [entry for entry in entries if not entry.get("retired")]
    return (unfinished or entries[-1:] or [None])[0]


def by_group(entries, ranks, now_ns):
    """The one that says most of each process group, those that somebody waits in first. Sends and receives are left
    out: they are not numbered alike on all ranks. Who is in the default group goes without saying: thousands would each
    say it."""
    groups = {}
    for entry in entries:
        if not entry.get("is_p2p"):
            groups.setdefault(_group(entry), []).append(entry)
    chosen = [(group, last(own)) for group, own in groups.items()]
    chosen.sort(key=lambda each: bool(each[1].get("retired")))
    told = [(group, summary(entry, now_ns)) for group, entry in chosen[:MOST_GROUPS]]
    found = []
    for (name, backend), about in told:
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
    """There is no process group; one that has called collectives has destroyed it."""
    is_initialized = getattr(sys.modules.get("torch.distributed"), "is_initialized", None)
    return is_initialized is not None and not is_initialized()


def _frames():
    """Another number where the main thread is elsewhere."""
    frame, places = sys._current_frames().get(threading.main_thread().ident), []
    while frame is not None and len(places) < stacks.MOST_FRAMES:
        places.append("%s:%s" % (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return zlib.crc32(" ".join(places).encode(errors="replace"))


def _number(name):
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def _name_thread():
    """For the kernel, so that what this thread takes is no work of the rank (`activity`)."""
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
        is_asked = worker.mover is not None and worker.mover.waits
        happened = waiting.poll(1000 * (LOOK if is_asked else sampler.pause()))
        if any(event != select.POLLIN for _, event in happened):  # closed
            return
        message = channel.hear() if happened else None
        if message and message.get("ask") in ANSWERS:
            _tell(worker, channel, message.get("order"), ANSWERS[message["ask"]])
        if worker.mover is not None:
            worker.mover.hear(message or {})
        try:
            sampler.look(_without_stacks)
        except Exception:  # this window is lost
            pass


def _without_stacks():
    """Not NCCL's: who waits for others there does so in no collective, but where the script next looks at a result
    (`loss.item()`), so that the time to the first collective would blame those that wait."""
    try:
        return record(stacks=False, recorders=(RECORDER,))[0]
    except Exception:  # a recorder of another version is none
        return []


ANSWERS = {"collectives": answer, "stacks": lambda worker: {"stack": stacks.said()}}


def _tell(worker, channel, order, say):
    try:
        body = say(worker)
    except Exception as error:  # a recorder of another version: say so, never end the thread
        body = {"local_rank": worker.local_rank, "error": "%s: %s" % (type(error).__name__, error)}
    channel.send("up", {"answer": order, "local_rank": worker.local_rank, "body": body})


def listen(worker):
    """Starts the thread, once a process."""
    channel = worker.channel
    if channel is None or worker.listening:
        return
    worker.listening = True
    channel.bind(str(worker.local_rank))
    threading.Thread(target=_serve, args=(worker, channel), name="outrider", daemon=True).start()
