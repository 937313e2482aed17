"""Detects whether files that this process has imported have changed on disk.

A template whose installation was changed (`pip install -U`) must not fork again: its ranks would run code that no
longer exists. An installer that changes a package renames an entry of its site folder, so these folders are checked
first, by a few `stat` calls at each start; the files themselves are checked only if a folder differs.
"""

import os
import sys

SITES = ("site-packages", "dist-packages")


class Stamps:
    """The state of the files when the imports are done."""

    def __init__(self):
        self.sites = _stamps(path for path in sys.path if os.path.basename(path.rstrip("/")) in SITES)
        origins = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        self.files = _stamps(path for path in origins if isinstance(path, str) and _is_of_a_site(path))

    def changed(self):
        """The first changed file, or "". A file that is missing for the moment does not count."""
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
