"""The script of the tests of real jobs (`training.SCRIPT`), with other ways to save and to load."""

from __future__ import annotations

from tests.local.training import SCRIPT

FROM_MEMORY = """
    from training_hooks import checkpoint
    found = checkpoint.load(ON_DISK)
    if found is not None:
        net.load_state_dict(found[0]["model"])
        optimizer.load_state_dict(found[0]["optimizer"])
        loaded = found[1]
"""
TO_MEMORY = """
        if step % EVERY == 0:
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
            checkpoint.save(state, step, ON_DISK)
            checkpoint.wait()
            trace.write(json.dumps({"saved": step}) + "\\n")
"""
REGISTERED = """
    from training_hooks import migrator
    global progress
    progress = {"step": 0}
    migrator.register("model", net)
    migrator.register("optimizer", optimizer)
    migrator.register("progress", progress)
    migrator.listening()
    if migrator.resume:
        migrator.load_ckpt()
    loaded = progress["step"]
"""
OWN = """
    path = FOLDER / "model.pt"
    if path.exists():
        saved = torch.load(path)
        if saved["step"] > loaded:
            net.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loaded = progress["step"] = saved["step"]
"""
HANDLER = """
    import signal
    wanted = []
    signal.signal(signal.SIGUSR1, lambda *_: wanted.append(True))
    about = {"""


def calm(script: str = SCRIPT) -> str:
    """A third of the steps, and so of the CPU, while a story waits for something else than steps."""
    assert "time.sleep(0.02)" in script
    return script.replace("time.sleep(0.02)", "time.sleep(0.06)")


def remembering(on_disk: str = "None", script: str = SCRIPT) -> str:
    """It saves to memory, and has no checkpoints of its own."""
    begin, end = script.index("    if path.exists():"), script.index("    about = {")
    script = script[:begin] + FROM_MEMORY + script[end:]
    begin, end = script.index("        if rank == 0 and step % EVERY"), script.index("        obey(rank)")
    return (script[:begin] + TO_MEMORY + script[end:]).replace("ON_DISK", on_disk)


def in_shards(script: str) -> str:
    """Each rank's state is its own."""
    return script.replace("step, None)", "step, None, sharded=True)").replace("load(None)", "load(None, sharded=True)")


def migrating(script: str = SCRIPT) -> str:
    """It has registered its state, and has no checkpoints of its own."""
    begin, end = script.index("        if rank == 0 and step % EVERY"), script.index("        obey(rank)")
    return _registered(script[:begin] + script[end:], "")


def migrating_and_saving(script: str = SCRIPT) -> str:
    """It has registered its state, saves checkpoints as well, and goes on from what is newer."""
    return _registered(script, OWN)


def _registered(script: str, own: str) -> str:
    begin, end = script.index("    loaded, path = "), script.index("    about = {")
    script = script[:begin] + REGISTERED + own + script[end:]
    return script.replace("        optimizer.step()\n", "        optimizer.step()\n        progress['step'] = step\n")


def handling(script: str = SCRIPT) -> str:
    """It saves when a handler of its own says so, and at no other time."""
    periodic = "if rank == 0 and step % EVERY == 0:\n"
    assert periodic in script
    return script.replace("\n    about = {", HANDLER).replace(
        periodic, "if wanted and rank == 0 and not wanted.clear():\n"
    )
