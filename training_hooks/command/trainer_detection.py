"""Decides which Python process inside a command is the trainer, and that there is only one at a time.

A name in the annotation decides alone. Without it, the trainer is the first script that uses a library for training
over several processes, in its own syntax tree or in that of its own modules beside it. An installed program (pip, a
tool) is never the trainer. A process that another launcher made a rank (LOCAL_RANK is set) belongs to that launcher.
"""

import ast
import fcntl
import fnmatch
import importlib.machinery
import os
import sys

LIBRARIES = ("torch.distributed", "torch.nn.parallel", "lightning", "pytorch_lightning", "accelerate", "deepspeed")
TRAINER_NAMES = {("transformers", "Trainer"), ("transformers", "Seq2SeqTrainer"), ("tensorflow", "distribute")}
MOST_FILES = 40
INSTALLED = ("/site-packages/", "/dist-packages/")
LOCK = "template.lock"


def reason_to_be(called, environ):
    """The reason why the process with this invocation is the trainer, or "" if it is not."""
    if called.kind not in ("script", "module") or "LOCAL_RANK" in environ:
        return ""
    named = environ.get("OUTRIDER_SCRIPT")
    if named:
        return "%s was named as the trainer" % called.target if is_named(called.target, named) else ""
    if os.getppid() == 0:
        return "%s is the container's own command" % called.target
    path = source_of(called)
    if not path or any(part in path for part in INSTALLED):
        return ""
    library = library_used(path)
    return "%s is the first script that uses %s" % (called.target, library) if library else ""


def is_named(target, name):
    """Whether `name`, a path, the end of one, a pattern, or a module's name, means the target."""
    target, name = os.path.normpath(target), os.path.normpath(name)
    return target == name or target.endswith("/" + name) or fnmatch.fnmatch(target, name)


def source_of(called):
    """The file that will run as __main__, or "" if there is none to read. Nothing is imported."""
    if called.kind == "script":
        path = os.path.join(called.target, "__main__.py") if os.path.isdir(called.target) else called.target
        return os.path.abspath(path) if os.path.isfile(path) else ""
    search = [os.getcwd(), *sys.path]
    spec = None
    names = called.target.split(".")
    for name in names:
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            return ""
        search = list(spec.submodule_search_locations or [])
    if spec.submodule_search_locations is not None:
        spec = importlib.machinery.PathFinder.find_spec("__main__", search)
    return spec.origin or "" if spec else ""


def is_missing(called):
    """Whether no finder knows the module that -m names. Nothing is imported."""
    search, name = [os.getcwd(), *sys.path], ""
    for part in called.target.split(".") if called.kind == "module" else ():
        within = search if name else None
        name = name + "." + part if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, search) or _found_by_others(name, within)
        if spec is None:
            return True
        search = list(spec.submodule_search_locations or [])
    return False


def _found_by_others(name, within):
    """Whether an editable installation, which has its own finder, has the module."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, within) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def library_used(path):
    """The library that identifies a script as a trainer, searched in its own modules too; "" if there is none."""
    folder, queue, seen = os.path.dirname(path), [path], set()
    while queue and len(seen) < MOST_FILES:
        path = queue.pop(0)
        if path in seen:
            continue
        seen.add(path)
        tree = _tree(path)
        for node in ast.walk(tree) if tree else ():
            found = _library(node)
            if found:
                return found
            queue.extend(_own_modules(node, folder, os.path.dirname(path)))
    return ""


def _tree(path):
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(1 << 20))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _library(node):
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        module = node.module or ""
        names = [module] + ["%s.%s" % (module, alias.name) for alias in node.names]
        for alias in node.names:
            if (module.split(".")[0], alias.name) in TRAINER_NAMES:
                return "%s.%s" % (module, alias.name)
    elif isinstance(node, ast.Attribute):
        names = [_dotted(node)]
    for name in names:
        for library in LIBRARIES:
            if name == library or name.startswith(library + "."):
                return library
        if name.startswith(("tf.distribute", "tensorflow.distribute", "transformers.Trainer")):
            return name
    return ""


def _dotted(node):
    if isinstance(node, ast.Attribute):
        left = _dotted(node.value)
        return left and left + "." + node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _own_modules(node, folder, beside):
    """The script's own files that an import statement loads."""
    names, base = [], folder
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = [module] + [(module + "." if module else "") + alias.name for alias in node.names]
        for _ in range(node.level):
            base, beside = (beside, os.path.dirname(beside)) if node.level else (base, beside)
    for name in filter(None, names):
        stem = os.path.join(base, *name.split("."))
        for path in (stem + ".py", os.path.join(stem, "__init__.py")):
            if os.path.isfile(path):
                yield path


def is_claimed(environ):
    """Whether another process of this container is the template: it has the lock of `template.become.only_one`."""
    try:
        with open(os.path.join(environ["OUTRIDER_DIR"], LOCK), "r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True
