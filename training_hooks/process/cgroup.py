"""Finds the files of this container's cgroup, v1 or v2.

A container sees its own group as the root, whatever its path is outside. So the group's path is tried first, then the
root.
"""

V1, V2 = "/sys/fs/cgroup/%s%s/%s", "/sys/fs/cgroup%s/%s"


def candidates(text, controller, of_v1, of_v2):
    """Possible paths of a controller's file, from the text of /proc/self/cgroup. `of_v1`, `of_v2`: the file's names."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    paths = [V1 % (controller, path.rstrip("/"), of_v1) for _, kinds, path in rows if controller in kinds.split(",")]
    paths += [V2 % (path.rstrip("/"), of_v2) for _, kinds, path in rows if not kinds]
    return paths + [V1 % (controller, "", of_v1), V2 % ("", of_v2)]


def rows(pid):
    """The lines of a process's /proc/<pid>/cgroup."""
    return read("/proc/%s/cgroup" % pid).splitlines()


def folder(row, mounts):
    """The folder of one such line for a process with these mounts (/proc/self/mounts); "" if it is not mounted."""
    _, kinds, path = row.split(":", 2)
    for _, place, kind, options in (line.split()[:4] for line in mounts.splitlines()):
        if kind == ("cgroup" if kinds else "cgroup2") and set(kinds.split(",")) <= set(options.split(",") + [""]):
            return place + path
    return ""


def read(path):
    """The text of a file, or "" if there is none."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def files(controller, of_v1, of_v2):
    """(path, text) of each existing file, the container's own first."""
    paths = candidates(read("/proc/self/cgroup"), controller, of_v1, of_v2)
    return [(path, text) for path, text in ((path, read(path)) for path in paths) if text]
