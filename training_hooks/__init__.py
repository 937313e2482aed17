"""The part of Outrider that runs in the trainer container: Python 3.8+, standard library only.

The hooks never raise into training and never print. A script imports three names from here; all work without a job:

    checkpoint       checkpoints in the members' memory (`training_hooks.checkpoint.save`, `.load`, `.wait`)
    migrator         the state that is saved before a planned move (`training_hooks.migrator.register`, …)
    ElasticSampler   a DistributedSampler that can continue an epoch with another number of ranks

`HOOKS_PATH` is the only folder that is added to the trainer's PYTHONPATH. It contains `sitecustomize.py` and nothing
that could shadow a user's module. sitecustomize finds this package (next to it in a pod, above it in an installation)
and loads it as `_outrider_hooks`, so a user's own `training_hooks` still imports. Two rules follow for every module
here: imports are relative, and no module looks this package up in sys.modules.

    >>> import os, training_hooks
    >>> sorted(name for name in os.listdir(training_hooks.HOOKS_PATH) if name.endswith(".py"))
    ['sitecustomize.py']
    >>> training_hooks.checkpoint.__name__
    'training_hooks.public.checkpoint'
    >>> training_hooks.checkpoints_in_memory
    Traceback (most recent call last):
    AttributeError: module 'training_hooks' has no attribute 'checkpoints_in_memory'
"""

import os
import sys

BEFORE = frozenset(sys.modules)
"""Names of the modules imported before the hooks; any other module that the hooks import must not shadow a user's."""
PACKAGE = os.path.dirname(os.path.abspath(__file__))
"""Absolute path of this package."""
HOOKS_PATH = os.path.join(PACKAGE, "path")
"""Absolute path of the folder that contains sitecustomize.py only. OUTRIDER_HOOKS names it, and a launcher prepends it
to PYTHONPATH. It is the same in a checkout, a wheel and an editable installation; a copy of the whole package works as
well."""


def __getattr__(name):
    """Returns `checkpoint`, `migrator` or `ElasticSampler`, imported at the first access. Raises AttributeError for
    any other name. `ElasticSampler` imports torch; the two modules import it when their functions need it."""
    from .public.exports import get

    return get(name)
