"""Which part a starting Python process plays: template, worker process, or none of ours.

- A descendant of a worker process (a DataLoader worker made by spawn, a subprocess): none.
- A process of a generation that a launcher runs: a worker process, perhaps; it is watched, lightly.
- A process that launcher or takeover marked with OUTRIDER_TEMPLATE: the template.
- What was executed into the container beside its command (an exec probe, a postStart hook): none
(`process.container_command`).
- One that is given its program as text: none. Shell scripts start hundreds of those: nothing else is loaded for it.
- Anything else in the container may be the trainer, or an inner launcher to be taken over: inside `bash -c` only the
  Python itself shows up with its arguments expanded. It errs on the side of leaving a process alone, as
  `command.plan` does.

The mark leaves os.environ before anything of the user's runs, so that it cannot reach a child: here, or in
sitecustomize, which does not even load this for a descendant of a worker process.
"""

import os

MARK = "OUTRIDER_TEMPLATE"
WORKER = "OUTRIDER_WORKER"
"""In the environment of a worker process: its pid. Whatever has it with another pid is a descendant."""


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

        template_become.become("the launcher named this process")
        exec_env.settle()
    else:
        _become_what_it_looks_like()


def _become_what_it_looks_like():
    """The template, or the one that takes its torchrun over; or nothing of ours."""
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
    from .command.invocation import current  # by its module: what the package is asked for loads `public`

    if "OUTRIDER_CHAOS" not in os.environ and current().kind not in ("script", "module"):
        return False
    from .process.container_command import is_of_the_command

    return is_of_the_command(os.environ)
