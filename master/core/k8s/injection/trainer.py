"""The trainer's container of an injected pod: its changes and its expected supervision mode.

The changes are minimal: variables, a mount and, if the container has a command, the launcher before it. Without a
command, only PYTHONPATH loads the hooks, and the pod must name the PYTHONPATH of the image or the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from outrider.master.core.k8s.injection.sidecar import HOOKS, field, mount, variable
from outrider.master.core.k8s.owners.place import Place
from outrider.master.core.k8s.pods import migration_dir
from outrider.master.core.k8s.pods.trainer_container import FIRST, Chosen
from outrider.master.core.k8s.values import atomic_save, checkpoint_memory
from outrider.master.core.k8s.values.fields import entries
from outrider.master.core.k8s.values.names import CONTAINER, MOUNT, PROXIES, PYTHONPATH, USERS_PYTHONPATH, Document

LAUNCH = f"{HOOKS}/outrider-launch"
TERMINATION_LOG = "/dev/termination-log"

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")
WRAPPERS = (
    "env", "nice", "ionice", "numactl", "taskset", "tini", "dumb-init", "time", "stdbuf", "setpriv", "gosu", "su-exec",
    "nohup", "uv", "poetry", "pipenv", "conda", "micromamba", "pdm", "hatch",
)  # fmt: skip
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.launch")
ACCELERATE_MODULES = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_PYTHON = re.compile(r"(python|pypy)[0-9.tdm]*")
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(run|launch)\b")
_ACCELERATE, _PY = re.compile(r"\baccelerate\s+launch\b"), re.compile(r"\bpy(thon|py)[\d.]*[\"']?\s")
_SCRIPT = re.compile(r"\.py\b|-m\s")
_OTHER_LAUNCHER = re.compile(r"\b(deepspeed|horovodrun|mpirun|mpiexec|srun)\b")


def doubts(containers: Sequence[Document], chosen: Chosen, place: Place) -> Iterator[str]:
    """Warns if the trainer was chosen only as the first container and another one looks more like a trainer."""
    trainer = containers[chosen.index]
    if chosen.reason != FIRST or not _trains_not(trainer):
        return
    others = [str(each.get("name")) for each in containers if each.get("name") not in PROXIES and _trains(each)]
    if len(others) == 1:
        yield (
            f"the container {trainer.get('name')} counts as the trainer because it is the first, but its command does "
            f"not run Python; if {others[0]} is the trainer, put it first or set the annotation "
            f"{CONTAINER}: {others[0]}"
        )


def _trains(container: Document) -> bool:
    """Whether the command runs Python or a launcher, directly or in a shell or a wrapper."""
    return any(_names_python(word) for word in _words(container))


def _trains_not(container: Document) -> bool:
    """Whether the command is known and does not train; a shell's script file may do anything."""
    words = _words(container)
    is_script = bool(words) and _basename(words[0]) in SHELLS and not any(word.startswith("-") for word in words[1:])
    return bool(words) and not _trains(container) and not is_script


def _words(container: Document) -> list[str]:
    return [str(word) for word in (*container["command"], *entries(container.get("args")))] if (
        has_command(container)) else []  # fmt: skip


def _names_python(word: str) -> bool:
    name = _basename(word)
    is_program = bool(_PYTHON.fullmatch(name)) or name in LAUNCHERS or name.endswith(".py")
    return is_program or bool(_TORCHRUN.search(word) or _OTHER_LAUNCHER.search(word)) or _runs_python(word)


def _runs_python(text: str) -> bool:
    """Whether a shell text runs Python; each command is searched once, as in `webhook._names_pid_1`."""
    for command in re.split(r"[;&|\n]", text):
        found = _PY.search(command)
        if found is not None and _SCRIPT.search(command, found.end() - 1):
            return True
    return _ACCELERATE.search(text) is not None


# -- changes ------------------------------------------------------------------------------------------------------
def launched(container: Document, place: Place) -> Document:
    """A copy of the container with the hooks; existing entries keep their order, and new ones follow."""
    env = list(entries(container.get("env")))
    changes: Document = {}
    if has_command(container):
        changes["command"] = [LAUNCH, *container["command"]]
    else:
        env = _with_pythonpath(env, place.pythonpath, has_sources=bool(container.get("envFrom")))
    own = {entry.get("name") for entry in env}
    ours = [*_variables(place), *_termination_message(container)]
    changes["env"] = [*env, *(entry for entry in ours if entry["name"] not in own)]
    changes["volumeMounts"] = [*entries(container.get("volumeMounts")), mount()]
    return {**container, **changes}


def has_command(container: Document) -> bool:
    return bool(container.get("command"))


def _variables(place: Place) -> Iterator[Document]:
    yield variable("OUTRIDER_DIR", MOUNT)
    yield variable("OUTRIDER_HOOKS", HOOKS)
    yield field("OUTRIDER_POD_UID", "metadata.uid")
    yield variable("OUTRIDER_JOB", place.key)
    yield variable("OUTRIDER_PATIENCE", "inf" if place.alone_after is None else f"{place.alone_after:g}")
    if place.nproc is not None:
        yield variable("OUTRIDER_NPROC", place.nproc)
    if place.script:
        yield variable("OUTRIDER_SCRIPT", place.script)
    if place.per_rank:
        yield variable("OUTRIDER_PER_RANK", 1)
    if place.migration_dir:
        yield variable(migration_dir.VARIABLE, migration_dir.of_job(place.migration_dir, place.job))
    if place.checkpoint_memory:
        yield variable(checkpoint_memory.VARIABLE, place.checkpoint_memory)
    if place.checkpoint_path:
        yield variable(checkpoint_memory.PATH_VARIABLE, place.checkpoint_path)
    if place.atomic_save:
        yield variable(atomic_save.VARIABLE, place.atomic_save)


def _termination_message(container: Document) -> Iterator[Document]:
    """The path for the hooks' termination message, if the container sets one."""
    path = container.get("terminationMessagePath")
    if isinstance(path, str) and path and path != TERMINATION_LOG:
        yield variable("OUTRIDER_TERMINATION_LOG", path)


def _with_pythonpath(env: list[Document], of_image: str, has_sources: bool) -> list[Document]:
    """The variables with the hooks before the trainer's own PYTHONPATH, from its variable, an envFrom or the image.

    If nothing sets PYTHONPATH, the kubelet leaves $(PYTHONPATH) as it is, which is a missing folder and does no harm.
    """
    places = [index for index, entry in enumerate(env) if entry.get("name") == "PYTHONPATH"]
    if not places:
        users = of_image or ("$(PYTHONPATH)" if has_sources else "")
        return [*env, variable("PYTHONPATH", _prepended(users))]
    last = places[-1]  # of two with one name the last counts
    entry = env[last]
    if entry.get("valueFrom") is None:
        return [*env[:last], {**entry, "value": _prepended(entry.get("value") or "")}, *env[last + 1 :]]
    kept = {**entry, "name": USERS_PYTHONPATH}
    return [*env[:last], kept, variable("PYTHONPATH", _prepended(f"$({USERS_PYTHONPATH})")), *env[last + 1 :]]


def _prepended(users: str) -> str:
    return f"{HOOKS}:{users}" if users else HOOKS


def about_pythonpath(container: Document, place: Place) -> str:
    """The explanation of PYTHONPATH for a container without a command; with one, the launcher sets it."""
    own = [entry for entry in entries(container.get("env")) if entry.get("name") == "PYTHONPATH"]
    unused = f"; annotation {PYTHONPATH} is ignored, because the variable hides the image's" if place.pythonpath else ""
    if own and own[-1].get("valueFrom") is not None:
        return f"PYTHONPATH is the hooks and then its valueFrom, as $({USERS_PYTHONPATH}){unused}"
    if own:
        return f"PYTHONPATH is the hooks and then its own value{unused}"
    if place.pythonpath:
        return f"PYTHONPATH is the hooks and then the annotation {PYTHONPATH}"
    source = "and then that of envFrom" if container.get("envFrom") else "alone"
    return f"PYTHONPATH is the hooks {source}; if the image sets one, set the annotation {PYTHONPATH} to it"


# -- which supervision mode ----------------------------------------------------------------------------------------
def mode_of(container: Document, place: Place) -> str:
    """The expected supervision mode as one sentence.

    `training_hooks/command/plan.py` decides it later with the files at hand; the status of the member has the result.
    """
    if not has_command(container):
        return (
            "fork if the image's entrypoint is a Python trainer, which cannot be seen here; else none: it runs "
            "unsupervised, because no launcher can be put before it"
        )
    argv = [str(word) for word in (*container["command"], *entries(container.get("args")))]
    return _aimed(argv, place.script)


def _aimed(argv: Sequence[str], script: str) -> str:
    name = _basename(argv[0])
    if name in ("torchrun", "torchrun.py"):
        return "fork: Outrider replaces torchrun, and its script becomes the template"
    if name == "accelerate":
        return _accelerate(argv[1:])
    if name == "deepspeed" or _OTHER_LAUNCHER.fullmatch(name):
        return f"relaunch: {name} starts its ranks itself, so it is restarted for each generation"
    if _PYTHON.fullmatch(name):
        return _python(argv)
    if name in SHELLS:
        return _shell(argv, script)
    if name in WRAPPERS:
        return _wrapped(argv, script)
    return f"fork if the first line of {argv[0]} shows a Python script; else relaunch, restarted for each generation"


def _accelerate(arguments: Sequence[str]) -> str:
    if arguments[:1] == ["launch"]:
        return "fork: accelerate launch runs its script directly or like torchrun; the script becomes the template"
    return f"relaunch: accelerate {' '.join(arguments[:1])} does not train, so it is restarted for each generation"


def _python(argv: Sequence[str]) -> str:
    """`python [options] (script | -m module | -c code | -)`."""
    index = 1
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-":
        word = argv[index]
        letters = "" if word.startswith("--") else re.sub("[WXQ].*", "", word[1:])
        for place, letter in enumerate(letters):
            if letter in "IES":
                return f"relaunch: Python runs with -{letter}, so the hooks cannot be loaded"
            if letter == "c":
                return "relaunch: Python gets its program as text, not as a script"
            if letter == "m":
                rest = letters[place + 1 :]
                return _module(rest or "".join(argv[index + 1 : index + 2]), argv[index + (1 if rest else 2) :])
        index += 2 if re.fullmatch("-[a-zA-Z]*[WXQ]|--check-hash-based-pycs", word) else 1
    target = argv[index] if index < len(argv) else "-"
    if target == "-":
        return "relaunch: Python gets its program as text, not as a script"
    if _basename(target) in ("torchrun", "torchrun.py"):
        return "fork: Outrider replaces torchrun, and its script becomes the template"
    if _basename(target) == "accelerate":
        return _accelerate(argv[index + 1 :])
    if _basename(target) == "deepspeed":
        return "relaunch: deepspeed starts its ranks itself, so it is restarted for each generation"
    return f"fork: the container's command is the script {target}, which becomes the template"


def _module(module: str, arguments: Sequence[str]) -> str:
    if module in TORCHRUN_MODULES:
        return "fork: Outrider replaces torchrun, and its script becomes the template"
    if module in ACCELERATE_MODULES:
        return _accelerate(["launch"] if module == ACCELERATE_MODULES[0] else arguments)
    if module.startswith("deepspeed.launcher"):
        return "relaunch: deepspeed starts its ranks itself, so it is restarted for each generation"
    return f"fork: the container's command is the module {module}, which becomes the template"


def _shell(argv: Sequence[str], script: str) -> str:
    name = _basename(argv[0])
    options = [index for index, word in enumerate(argv) if re.fullmatch("-[a-zA-Z]*c[a-zA-Z]*", word)]
    if not options:
        return f"fork if the script of {name} starts a Python trainer; else relaunch, restarted for each generation"
    text = re.sub(r"(?m)^[^\S\n]*#.*$", "", "".join(argv[options[0] + 1 : options[0] + 2])).replace("\\\n", " ")
    if found := _OTHER_LAUNCHER.search(text):
        launcher = f"{found.group()} inside {name} -c"
        return f"relaunch: {launcher} starts its ranks itself, so it is restarted for each generation"
    if _TORCHRUN.search(text):
        return f"fork: Outrider replaces torchrun inside {name} -c, and its script becomes the template"
    if _runs_python(text):
        if script:
            return f"fork: inside {name} -c, the script that matches {script} becomes the template"
        return (
            f"fork if a Python script inside {name} -c uses a library for several processes (torch.distributed, "
            f"lightning, accelerate …); else relaunch, restarted for each generation"
        )
    return f"relaunch: {name} -c names no Python trainer, so it is restarted for each generation"


def _wrapped(argv: Sequence[str], script: str) -> str:
    for index in range(1, len(argv)):
        name = _basename(argv[index])
        if _PYTHON.fullmatch(name) or name in (*SHELLS, "torchrun", "accelerate", "deepspeed"):
            return f"{_aimed(argv[index:], script)} (inside {_basename(argv[0])})"
    return f"relaunch: {_basename(argv[0])} shows no Python command, so it is restarted for each generation"


def _basename(path: str) -> str:
    return path.rpartition("/")[2]
