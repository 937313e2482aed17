"""What a script may import under Outrider without having it installed: `from training_hooks import ElasticSampler`.

The hooks are loaded under a name of their own and are on no path, so that a user's own `training_hooks` stays theirs.
Hence a finder behind all others: it serves that name as a facade over the loaded hooks where nothing else has it (an
installed outrider has).
"""

import importlib
import importlib.machinery
import sys

NAME = "training_hooks"
OFFERED = {"ElasticSampler": ("sampler", "elastic_sampler")}
"""Name: the module of this package and its function that gives it."""


def get(name):
    """AttributeError where it is not offered."""
    if name not in OFFERED:
        raise AttributeError("module %r has no attribute %r" % (NAME, name))
    module, function = OFFERED[name]
    return getattr(importlib.import_module("." + module, __package__), function)()


class _Facade:
    """Finder and loader of the name."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == NAME else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__getattr__ = get


def serve():
    if not any(isinstance(each, _Facade) for each in sys.meta_path):
        sys.meta_path.append(_Facade())
