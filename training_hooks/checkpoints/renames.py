"""Follows a checkpoint to its name: a script saves to `x.tmp`, a framework to a folder of its own, and renames it.

Wrapped are os.rename and os.replace, which pathlib and shutil.move use as well.
"""

import os

from . import newer_kept


class Wrapped:
    """In place of a builtin of a module. No function: as a class's attribute (pathlib's, before Python 3.11) a function
    would be bound."""

    def __init__(self, real, call, module="os"):
        self.__wrapped__, self._call = real, call
        self.__name__ = self.__qualname__ = real.__name__
        self.__doc__, self.__module__ = real.__doc__, module

    def __call__(self, *args, **kwargs):
        return self._call(self.__wrapped__, *args, **kwargs)

    def __reduce__(self):
        return self.__name__

    def __repr__(self):
        return repr(self.__wrapped__)


def wrap(name, call):
    """`call(real, *args, **kwargs)` in place of os.<name>."""
    real = getattr(os, name)
    wrapped = Wrapped(real, call)
    for group in (os.supports_dir_fd, os.supports_follow_symlinks):
        if real in group:
            group.add(wrapped)
    setattr(os, name, wrapped)


def follow(current):
    """`current()` gives this process's worker."""

    def followed(real, src, dst, **kwargs):
        worker, existed = current(), False
        if worker is None or kwargs or not worker.known.own:
            return real(src, dst, **kwargs)
        newer_kept.keep(worker, dst)
        try:
            old, new = (os.path.abspath(os.fsdecode(each)) for each in (src, dst))
            existed = os.path.exists(new)
        except Exception:  # whatever is wrong with them, the real one says it
            return real(src, dst)
        result = real(src, dst)
        try:
            worker.renamed(old, new, existed)
        except Exception:  # the name is not followed; the training goes on
            pass
        return result

    wrap("rename", followed)
    wrap("replace", followed)
