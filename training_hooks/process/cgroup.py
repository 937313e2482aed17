"""Where this container's cgroup shows its files, v1 or v2.

A container sees its own group as the root, whatever its path is called outside: so the group's path is tried first, and
then the top.
"""

V1, V2 = "/sys/fs/cgroup/%s%s/%s", "/sys/fs/cgroup%s/%s"


def candidates(text, controller, of_v1, of_v2):
    """The paths at which a controller's file may be, for this /proc/self/cgroup. `of_v1` and `of_v2`: its names."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    paths = [V1 % (controller, path.rstrip("/"), of_v1) for _, kinds, path in rows if controller in kinds.split(",")]
    paths += [V2 % (path.rstrip("/"), of_v2) for _, kinds, path in rows if not kinds]
    return paths + [V1 % (controller, "", of_v1), V2 % ("", of_v2)]


def rows(pid):
    """The lines of a process's /proc/<pid>/cgroup."""
    return read("/proc/%s/cgroup" % pid).splitlines()


def folder(row, mounts):
    """Of one such line, as a process sees it that has these mounts (/proc/self/mounts); "" where it is not mounted."""
    _, kinds, path = row.split(":", 2)
    for _, place, kind, options in (line.split()[:4] for line in mounts.splitlines()):
        if kind == ("cgroup" if kinds else "cgroup2") and set(kinds.split(",")) <= set(options.split(",") + [""]):
            return place + path
    return ""


def read(path):
    """A file's text, "" where there is none."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def files(controller, of_v1, of_v2):
    """(path, text) of those that are there, the container's own first."""
    paths = candidates(read("/proc/self/cgroup"), controller, of_v1, of_v2)
    return [(path, text) for path, text in ((path, read(path)) for path in paths) if text]
