"""The program of `outrider-launch`: becomes the template in place, or stays as the supervisor of the command.

An isolated Python (`-I -S`) runs it as a file, so it finds its package by its own path. `--each-rank` comes from a
template that cannot be one, or from a replaced torchrun whose ranks are not Python; the command follows `--`.
"""

import os
import sys

if __name__ == "__main__":
    import importlib.util

    _folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _spec = importlib.util.spec_from_file_location(
        "_outrider_hooks", os.path.join(_folder, "__init__.py"), submodule_search_locations=[_folder]
    )
    sys.modules["_outrider_hooks"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["_outrider_hooks"])
    importlib.import_module("_outrider_hooks.launcher.main").main(sys.argv[1:])


def main(arguments):
    from ..command import context

    environ = {name: value for name, value in os.environ.items() if name not in context.OURS}
    if arguments[:1] == ["--each-rank"]:
        from ..command import exec_env
        from . import loop

        settings = exec_env.take()
        loop.supervise(arguments[2:], environ, settings, True)
        return
    from ..chaos import base as chaos_base
    from ..command import plan as command_plan

    chaos_base.arm(environ)
    decided = command_plan.plan(arguments, environ)
    if decided.kind == "python":
        _become_template(decided.argv, environ, decided.reason)
    elif decided.kind == "takeover":
        _take_over(decided, environ)
    else:
        _supervise(decided, environ)


def _become_template(argv, environ, reason):
    from ..command import context, exec_env

    context.execute(argv, exec_env.mark(environ, reason))


def _take_over(decided, environ):
    """Replaces torchrun before it starts if its flags are sufficient, which saves 2 to 3 s of imports; otherwise
    torchrun runs, and the hook inside it replaces it."""
    from . import torchrun

    torchrun.without_torchrun(decided.argv, decided.inner, environ)
    _supervise(decided, environ)


def _supervise(decided, environ):
    from . import loop

    if decided.kind != "command" and decided.script and "OUTRIDER_SCRIPT" not in environ and not decided.inner:
        environ["OUTRIDER_SCRIPT"] = decided.script
    settings = {"reason": decided.reason, "watch": decided.kind != "command"}
    loop.supervise(decided.argv, environ, settings, environ.get("OUTRIDER_PER_RANK") == "1")
