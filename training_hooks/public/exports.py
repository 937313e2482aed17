"""What a script may import under Outrider without having it installed. It is `from training_hooks import migrator`, and
`migration` for scripts that know the migrator by that name.

The hooks are loaded under a name of their own and are on no path, so that a user's own `training_hooks` stays theirs.
What they know of this process is in their modules: another copy, as an installed outrider is, would know nothing. So
these names are facades over the loaded hooks, unless the user has modules of these names.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

PUBLIC = {"training_hooks": ("checkpoint", "migrator", "ElasticSampler"), "migration": ("migrator",)}
"""What is offered, by the name that it is offered in."""
MADE = {"ElasticSampler": ("sampler", "elastic_sampler")}
"""Of those that are no module: the module of this package, and its function that gives it."""


def get(name):
    """A module of this package, or what one of its functions makes. AttributeError where it is not offered."""
    if name not in PUBLIC["training_hooks"]:
        raise AttributeError("module 'training_hooks' has no attribute %r" % name)
    if name in MADE:
        module, function = MADE[name]
        return getattr(importlib.import_module("." + module, __package__), function)()
    return importlib.import_module("." + name, __package__)


class _Facade:
    """Finder and loader of these names."""

    def __init__(self):
        self._asking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in PUBLIC or name in self._asking:
            return None
        self._asking.add(name)
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        finally:
            self._asking.discard(name)
        if found is not None and not _is_ours(found):
            return found
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        for name in PUBLIC[module.__name__]:
            if name not in MADE:
                sys.modules["%s.%s" % (module.__name__, name)] = get(name)

        module.__getattr__ = get


def _is_ours(spec):
    """An installed copy of this very package."""
    folder = os.path.dirname(spec.origin or "")
    return all(os.path.exists(os.path.join(folder, name)) for name in ("public", "entry.py"))


def serve():
    if not any(isinstance(each, _Facade) for each in sys.meta_path):
        sys.meta_path.insert(0, _Facade())
