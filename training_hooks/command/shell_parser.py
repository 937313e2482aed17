"""Reads a shell's line or script, as far as that is possible without a shell.

It finds the simple commands, and in them the Python scripts and the flags of a torchrun. If the shell would expand a
word, change the folder or source a file, nothing is assumed, and the processes are examined when they start.
"""

import os
import re
import shlex

from . import invocation
from .torchrun_args import inner_flags, is_python, torch_arguments

SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")
EXPANDED = re.compile(r"[$`*?~]")
"""Characters of a word that a shell would expand before it runs the command."""
HIDING = {"cd", "pushd", "source", ".", "eval", "torchrun", "accelerate"}
"""Words after which the script cannot be determined, or which start one themselves."""


def line_of(argv):
    """(the line after a shell's `-c`, or None; the words after its options)."""
    words = argv[2:] if os.path.basename(argv[0]) == "busybox" else argv[1:]
    while words and words[0][:1] in "-+" and not (words[0][:2] != "--" and "c" in words[0]):
        words = words[2:] if words[0] in ("-o", "+o", "-O", "+O") else words[1:]
    if words and words[0][:1] == "-":
        return words[1] if len(words) > 1 else "", words[1:]
    return None, words


def flags_inside(argv, environ=None):
    """As `inner_flags`, but also for a torchrun in the line of `bash -c` if its words are literal; words that the shell
    would have to expand are left to it."""
    argv = list(argv)
    line = line_of(argv)[0] if os.path.basename(argv[0]) in SHELLS else None
    if line is None:
        return inner_flags(argv, environ)
    for words in _simple_commands(line):
        for index in range(len(words)):
            if torch_arguments(words[index:]) is not None:
                return _flags_of(words[index:], environ)
    return None


def _flags_of(words, environ):
    found = inner_flags(words, environ)
    if found is None or any(EXPANDED.search(word) for word in words[: len(words) - len(found.arguments)]):
        return None
    return found


def _simple_commands(line):
    """The words of each command in a line, or [] if it cannot be parsed."""
    reader = shlex.shlex(line.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    commands = [[]]
    try:
        for word in reader:
            if set(word) <= set("();<>|&"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return []
    return commands


def scripts_in(text):
    """The files of all Python scripts that a shell's text runs; () if one of them is only known at run time."""
    from . import trainer_detection

    found = []
    for words in _simple_commands(text):
        if {os.path.basename(word) for word in words} & HIDING:
            return ()
        places = [index for index, word in enumerate(words) if is_python(os.path.basename(word))]
        called = invocation.parse(words[places[0] :]) if places else None
        if called and called.kind in ("script", "module"):
            found.append("" if EXPANDED.search(called.target) else trainer_detection.source_of(called))
    return tuple(found) if all(found) else ()
