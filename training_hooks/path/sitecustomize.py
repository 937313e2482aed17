"""Loads the hooks at the start of every Python process that has the hooks folder on its PYTHONPATH.

That is the trainer, but also pip, DataLoader workers, and interpreters of any version. So it decides by one look at the
environment, before it imports anything (a descendant of a rank pays for this file alone), leaves no folder on sys.path,
and then runs the user's own sitecustomize, which this one shadows. Python 2.7 can read it; below 3.8 and outside a
member (no OUTRIDER_DIR) it does nothing else. It raises only what the user's own sitecustomize raises, as Python
expects.
"""

import os
import sys


def _own_folder():
    return os.path.dirname(os.path.abspath(__file__))


def _leave_path(own):
    """Removes this folder from sys.path; returns the new sys.path."""
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != own]
    return list(sys.path)


def _run_next(path):
    """Runs the sitecustomize that Python would have found without this one."""
    if sys.version_info < (3, 5):
        import imp

        try:
            found = imp.find_module("sitecustomize", path)
        except ImportError:
            return
        imp.load_module("sitecustomize", *found)
        return
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _enter(own):
    """Loads the hooks, from beside this file (in a pod) or from the package that contains its folder (installed)."""
    import importlib.util

    folder = os.path.join(own, "training_hooks")
    if not os.path.isfile(os.path.join(folder, "entry.py")):
        folder = os.path.dirname(own)
    spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["_outrider_hooks"] = module
    spec.loader.exec_module(module)
    importlib.import_module("_outrider_hooks.entry").enter()


_own = _own_folder()
_path = _leave_path(_own)
_failure = None
try:
    _run_next(_path)
except Exception as error:  # the user's own failed: raised again after the hooks are loaded
    _failure = error
if "OUTRIDER_WORKER" in os.environ:
    os.environ.pop("OUTRIDER_TEMPLATE", None)
elif sys.version_info >= (3, 8) and os.environ.get("OUTRIDER_DIR"):
    try:
        _enter(_own)
    except Exception:  # the script runs even if the hooks fail
        if os.environ.get("OUTRIDER_DEBUG"):
            import traceback

            traceback.print_exc()
if "OUTRIDER_REHEARSAL" in os.environ:
    os._exit(1)  # a rehearsal must never run the script
if _failure is not None:
    raise _failure
