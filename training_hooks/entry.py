"""Decides the role of a starting Python process: template, worker process, or neither.

- A descendant of a worker process (a DataLoader worker made by spawn, a subprocess): neither.
- A process of a generation that a launcher runs: perhaps a worker process; it is observed with few hooks.
- A process that the launcher or torchrun's replacement marked with OUTRIDER_TEMPLATE: the template.
- A process executed into the container beside its command (an exec probe, a postStart hook): neither
  (`process.container_command`).
- A process whose program is given as text: neither. Shell scripts start hundreds of those, so no module is loaded.
- Any other process of the container may be the trainer, or an inner launcher to replace: inside `bash -c` only the
  Python itself shows its arguments expanded. In doubt a process is left alone, as in `command.plan`.

The mark is removed from os.environ before any code of the user runs, so that no child inherits it: here, or in
sitecustomize, which does not load this module for a descendant of a worker process.
"""

import os

MARK = "OUTRIDER_TEMPLATE"
WORKER = "OUTRIDER_WORKER"
"""Environment variable of a worker process with its pid; a process with another pid is a descendant."""


def enter():
    mark = os.environ.pop(MARK, None)
    if WORKER in os.environ or not (mark or "OUTRIDER_GENERATION" in os.environ or _may_be_the_trainer()):
        return
    if "OUTRIDER_CHAOS" in os.environ and "OUTRIDER_GENERATION" not in os.environ:
        from .chaos import base as chaos_base

        chaos_base.arm(os.environ)
    if "OUTRIDER_GENERATION" in os.environ:
        from . import patches

        patches.observe()
    elif mark:
        from .command import exec_env
        from .template import become as template_become

        template_become.become("the launcher started this process as the trainer")
        exec_env.settle()
    else:
        _become_what_it_looks_like()


def _become_what_it_looks_like():
    """Becomes the template, replaces torchrun, or does nothing, by the command line."""
    import sys

    from .command import invocation, torchrun_args, trainer_detection

    argv = invocation.command_line()
    called = invocation.parse(argv)
    if trainer_detection.is_claimed(os.environ):
        return
    is_accelerate = os.path.basename(called.target) == "accelerate" or called.target.startswith("accelerate.commands.")
    if is_accelerate or torchrun_args.torch_arguments([sys.executable, *argv[1:]]) is not None:
        from .launcher import torchrun

        torchrun.enter([sys.executable, *argv[1:]])
        return
    reason = trainer_detection.reason_to_be(called, os.environ)
    if reason:
        from .template import become as template_become

        template_become.become(reason)


def _may_be_the_trainer():
    from .command.invocation import current  # from its module: an attribute of the package would load `public`

    if "OUTRIDER_CHAOS" not in os.environ and current().kind not in ("script", "module"):
        return False
    from .process.container_command import is_of_the_command

    return is_of_the_command(os.environ)
