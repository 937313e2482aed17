"""Which Python process inside a command is the trainer, and that there is only one at a time.

A name given by the annotation decides alone. Without it, it is the first script whose syntax tree, or that of a module
of its own beside it, uses a library that trains over several processes; what is installed (pip, a tool) never is.
A process that another launcher made a rank (LOCAL_RANK is set) is that launcher's.
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
    """Why the process called so is the trainer, one sentence; "" where it is not."""
    if called.kind not in ("script", "module") or "LOCAL_RANK" in environ:
        return ""
    wanted = environ.get("OUTRIDER_SCRIPT")
    if wanted:
        return "%s was named as the trainer" % called.target if is_named(called.target, wanted) else ""
    if os.getppid() == 0:
        return "%s is the container's own command" % called.target
    path = source_of(called)
    if not path or any(part in path for part in INSTALLED):
        return ""
    library = library_used(path)
    return "%s is the first script that uses %s" % (called.target, library) if library else ""


def is_named(target, wanted):
    """`wanted` is a path, the end of one, a pattern, or a module's name."""
    target, wanted = os.path.normpath(target), os.path.normpath(wanted)
    return target == wanted or target.endswith("/" + wanted) or fnmatch.fnmatch(target, wanted)


def source_of(called):
    """The file that will be run as __main__, "" where there is none to read. Nothing is imported."""
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
    """No finder knows the module that -m names. Nothing is imported."""
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
    """An editable installation has a finder of its own."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, within) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def library_used(path):
    """The library by which a script is known as a trainer, followed through its own modules; "" where there is none."""
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
    """Files of the script's own that an import statement leads to."""
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
    """Another process of this container is the template now: it holds the lock that `template.become.only_one`
    takes."""
    try:
        with open(os.path.join(environ["OUTRIDER_DIR"], LOCK), "r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True
