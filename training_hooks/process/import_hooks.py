"""Calls a function right after a module has been imported, without importing it.

A function such as torch.save must be wrapped before another module copies its name by `from torch import save`. So a
loader around the real one wraps it at the moment the module is complete.
"""

import sys


class _Loader:
    """The real loader, with a call after it. All its other attributes stay visible."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        spec = module.__spec__
        spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for callback in _finder.take(module.__name__):
            _call(callback, module)


def _call(callback, module):
    try:
        callback(module)
    except Exception:  # a hook that does not fit this version of the module must not stop the import
        pass


class _Finder:
    """Finds what the other finders find. A lookup is not an import: a callback waits until its module has been run."""

    def __init__(self):
        self.waiting = {}
        self._asking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.waiting or name in self._asking:
            return None
        self._asking.add(name)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)
                    return spec
            return None
        finally:
            self._asking.discard(name)

    def take(self, name):
        callbacks = self.waiting.pop(name, ())
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        return callbacks


_finder = _Finder()


def when_imported(name, callback):
    """Calls `callback(module)` once: now if the module is imported, else right after its import."""
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _call(callback, module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)
