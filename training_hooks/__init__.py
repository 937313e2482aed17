"""What enters the trainer container: standard library only, Python 3.8+, never raises into training, never prints.

One folder is put on the trainer's PYTHONPATH, `HOOKS_PATH`, which holds `sitecustomize.py` and nothing that could
hide a module of the user's. sitecustomize finds this package (beside it in a pod, above it in an installation) and
loads it under the private name `_outrider_hooks`, so that a user's own `training_hooks` stays theirs. Hence a rule for
every module here: import each other relatively, and never look for this package in sys.modules.
"""

import os
import sys

BEFORE = frozenset(sys.modules)
"""What was imported before the hooks: what they import beyond it must not hide a module of the user's."""
PACKAGE = os.path.dirname(os.path.abspath(__file__))
HOOKS_PATH = os.path.join(PACKAGE, "path")
"""What OUTRIDER_HOOKS names and a launcher prepends to PYTHONPATH: a folder with sitecustomize.py alone. The same place
in a checkout, a wheel and an editable installation; a copy of the whole package works as well as the original."""


def __getattr__(name):
    """What a user may import from here, made when it is asked for (`public.exports`)."""
    from .public.exports import get

    return get(name)
