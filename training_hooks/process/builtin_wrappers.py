"""Puts a call of ours in place of a builtin function of a module."""

import os


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
