"""Follows a checkpoint to its final name: scripts save to `x.tmp`, frameworks to a folder, and then rename it.

os.rename and os.replace are wrapped; pathlib and shutil.move use them as well.
"""

import os

from ..process import builtin_wrappers
from . import newer_kept


def follow(current):
    """`current()` returns this process's worker."""

    def followed(real, src, dst, **kwargs):
        worker, existed = current(), False
        if worker is None or kwargs or not worker.known.own:
            return real(src, dst, **kwargs)
        newer_kept.keep(worker, dst)
        try:
            old, new = (os.path.abspath(os.fsdecode(each)) for each in (src, dst))
            existed = os.path.exists(new)
        except Exception:  # the real function raises what is wrong with them
            return real(src, dst)
        result = real(src, dst)
        try:
            worker.renamed(old, new, existed)
        except Exception:  # the name is not followed; training continues
            pass
        return result

    builtin_wrappers.wrap("rename", followed)
    builtin_wrappers.wrap("replace", followed)
