"""Lets a script import the public names without an installed Outrider: `from training_hooks import migrator`.

Scripts that know the migrator as `migration` import it by that name. The hooks are loaded as `_outrider_hooks` and are
on no path, so that a user's own `training_hooks` still imports. Their modules hold what they know about this process;
another copy, for example of an installed outrider, would know nothing. So these names are facades over the loaded
hooks, unless the user has modules of these names.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

PUBLIC = {"training_hooks": ("checkpoint", "migrator", "ElasticSampler"), "migration": ("migrator",)}
"""Public names by the module that a script imports them from."""
MADE = {"ElasticSampler": ("sampler", "elastic_sampler")}
"""The module of this package and its function that creates the object, for public names that are not modules."""


def get(name):
    """Returns a public module, or the object that one of its functions creates. Raises AttributeError for any other
    name."""
    if name not in PUBLIC["training_hooks"]:
        raise AttributeError("module 'training_hooks' has no attribute %r" % name)
    if name in MADE:
        module, function = MADE[name]
        return getattr(importlib.import_module("." + module, __package__), function)()
    return importlib.import_module("." + name, __package__)


class _Facade:
    """Finder and loader of the public names."""

    def __init__(self):
        self._searching = set()

    def find_spec(self, name, path=None, target=None):
        if name not in PUBLIC or name in self._searching:
            return None
        self._searching.add(name)
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            found = None
        finally:
            self._searching.discard(name)
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
    """Whether the spec is an installed copy of this package."""
    folder = os.path.dirname(spec.origin or "")
    return all(os.path.exists(os.path.join(folder, name)) for name in ("public", "entry.py"))


def serve():
    """Installs the facade once in this process."""
    if not any(isinstance(each, _Facade) for each in sys.meta_path):
        sys.meta_path.insert(0, _Facade())
