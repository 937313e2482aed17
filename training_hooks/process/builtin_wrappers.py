"""Replaces a builtin function of a module by a wrapper."""

import os


class Wrapped:
    """A callable that replaces a builtin. It is not a function: as a class attribute (of pathlib's, before Python 3.11)
    a function would be bound."""

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
    """Replaces os.<name> by `call(real, *args, **kwargs)`."""
    real = getattr(os, name)
    wrapped = Wrapped(real, call)
    for group in (os.supports_dir_fd, os.supports_follow_symlinks):
        if real in group:
            group.add(wrapped)
    setattr(os, name, wrapped)
