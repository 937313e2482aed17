"""Parses how this Python was called: which script, module or code it is about to run.

At the time of sitecustomize sys.argv is not final (`-m` lacks its module's name), so the command line itself is parsed:
sys.orig_argv, or /proc/self/cmdline before Python 3.10.
"""

import os
import sys

WITH_VALUE = "WXQ"
LONG_WITH_VALUE = ("--check-hash-based-pycs",)


class Invocation:
    """`kind` is script, module, code or stdin. `target` is the path, the module's name or the code. `arguments` follow
    the target; `options` are the interpreter's own, before it."""

    def __init__(self, kind, target, arguments, options):
        self.kind, self.target, self.arguments, self.options = kind, target, arguments, options

    def __repr__(self):
        return "Invocation(%r, %r, %r, %r)" % (self.kind, self.target, self.arguments, self.options)


def command_line():
    """This process's argv, with the interpreter first."""
    original = getattr(sys, "orig_argv", None)
    if original:
        return list(original)
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]


def parse(argv):
    """Parses `python [options] (script | -m module | -c code | -) [arguments]`."""
    index, options = 1, []
    while index < len(argv):
        word = argv[index]
        if word == "-" or not word.startswith("-"):
            kind = "stdin" if word == "-" else "script"
            return Invocation(kind, word, argv[index + 1 :], options)
        if word.startswith("--"):
            taken = 2 if word in LONG_WITH_VALUE else 1
        else:
            found, taken = _short(argv, index, options)
            if found:
                return found
        options.extend(argv[index : index + taken])
        index += taken
    return Invocation("stdin", "-", [], options)


def _short(argv, index, options):
    """Parses one word of short options: (the invocation that it decides or None, number of words used)."""
    word = argv[index]
    for place, letter in enumerate(word[1:], 1):
        rest = word[place + 1 :]
        if letter in "cm":
            flags = options + ([word[:place]] if place > 1 else [])
            following = argv[index + 1 :]
            target, arguments = (rest, following) if rest else (following[0] if following else "", following[1:])
            return Invocation("module" if letter == "m" else "code", target, arguments, flags), 0
        if letter in WITH_VALUE:
            return None, 1 if rest else 2
    return None, 1


def current():
    return parse(command_line())
