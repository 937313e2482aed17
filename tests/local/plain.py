"""A training script without torch: its ranks meet in every step through plain sockets, at the rendezvous that they were
given. It begins in no time, and shows what the network does to ranks that need it."""

SCRIPT = '''
import json, os, socket, sys, time
from pathlib import Path

FOLDER, EVERY = Path(sys.argv[1]), 10
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MEETING = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
MEMBER = Path(os.environ["OUTRIDER_DIR"]).name


def connected():
    while True:
        try:
            return [socket.create_connection(MEETING)]
        except OSError:
            time.sleep(0.02)


def heard(peer):
    line = peer.makefile("r").readline()
    while not line:
        time.sleep(1)  # as a collective without a peer: for ever
    return json.loads(line)


def together(value):
    """Rank 0's, once every rank has come; a peer that is gone is waited for, as in a collective."""
    try:
        return exchanged(value)
    except OSError:
        while True:
            time.sleep(1)


def exchanged(value):
    if RANK:
        PEERS[0].sendall(b"1\\n")
        return heard(PEERS[0])
    for peer in PEERS:
        heard(peer)
    for peer in PEERS:
        peer.sendall(json.dumps(value).encode() + b"\\n")
    return value


PEERS = connected() if RANK else []
if not RANK:
    server = socket.create_server(MEETING)
    PEERS = [server.accept()[0] for _ in range(WORLD - 1)]
saved = FOLDER / "saved"
loaded = together(int(saved.read_text()) if saved.exists() else 0)
about = {"rank": RANK, "world": WORLD, "pid": os.getpid(), "loaded": loaded, "version": 1, "loss": 0.0,
         "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"]), "member": MEMBER}
trace = (FOLDER / f"trace-{MEMBER}-{os.getpid()}.jsonl").open("a", buffering=1)
step = loaded
def obey():
    """What a test wants this rank to do wrong."""
    order = FOLDER / f"order-{RANK}"
    if order.exists():
        text = order.read_text()
        order.unlink()
        exec(text)


while not together((FOLDER / "end").exists()):
    step += 1
    time.sleep(0.02)
    trace.write(json.dumps({"step": step, "time": time.time(), **about}) + "\\n")
    if RANK == 0 and step % EVERY == 0:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)
        trace.write(json.dumps({"saved": step}) + "\\n")
    obey()
'''
