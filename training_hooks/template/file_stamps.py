"""Whether the files from which this process has imported are still those that lie on the disk.

A template whose installation was changed (`pip install -U`) must not be forked again: its ranks would run what is no
longer there. An installer that changes a package renames an entry of its site folder, so those folders are asked first:
a few `stat`s at each start; the files themselves only where one of them differs.
"""

import os
import sys

SITES = ("site-packages", "dist-packages")


class Stamps:
    """Taken when the imports are done."""

    def __init__(self):
        self.sites = _stamps(path for path in sys.path if os.path.basename(path.rstrip("/")) in SITES)
        origins = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self.files = _stamps(path for path in origins if isinstance(path, str) and _is_of_a_site(path))

    def changed(self):
        """The first file that is another one now, else "". A file that is gone for the moment says nothing."""
        sites = _stamps(self.sites)
        if sites == self.sites:
            return ""
        found = [path for path, stamp in _stamps(self.files).items() if stamp != self.files[path]]
        if not found:
            self.sites = sites
        return found[0] if found else ""


def _is_of_a_site(path):
    return any("/%s/" % site in path for site in SITES)


def _stamps(paths):
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found
