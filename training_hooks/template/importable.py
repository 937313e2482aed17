"""Whether the next ranks would come through their imports, as far as that is certain (`rehearsal`).

The restart of a script that works must never be refused. So an error counts only where nothing before it may have
changed what it is about: a path that is set, a module that is written, a name that is patched, a condition, a handler.
"""

import ast
import os
import sys

from . import import_analysis, preimport


def judged(careful):
    """`refused` with what the next ranks would end with before the script's first own statement, if that is certain."""
    try:
        careful.run()
    except Wrong as wrong:
        return {"refused": str(wrong)}
    except ImportError as error:
        if careful.may_have_made_it():
            return {"unchecked": "%s: %s" % (type(error).__name__, error)}
        return {"refused": "%s: %s: %s" % (careful.place(), type(error).__name__, error)}
    except Exception as error:  # whatever it is, it is ours, and the script may be well
        return {"unchecked": "%s: %s" % (type(error).__name__, error)}
    return {"parked": len(careful.done)}


class Wrong(Exception):
    """What is wrong, with its file and line."""


class Careful(preimport.Early):
    """The early imports, where an error is an answer. What the reading does not understand
    (`template.preimport.Stopped`) ends it, because from there on an import may mean something else; behind that, only
    files are compiled which the script imports in any case."""

    def __init__(self, invocation, skip=None, begin_again=None):
        super().__init__(invocation, skip, begin_again)
        self.wanted, self.compiled = [], {}
        """(place, module, name) of what is imported by its name; trees by their files."""

    def place(self):
        return "%s line %d" % (_shown(self.file), self.line)

    def _read_script(self):
        if self.invocation.kind == "script" and not os.path.exists(self.invocation.target):
            raise Wrong("%s: No such file or directory" % _shown(self.invocation.target))
        try:
            for tree, package in self._sources():
                self._walk(tree.body, import_analysis.Names(), package, True)
        except preimport.Stopped as stop:
            self.notes.append(str(stop))
        for tree in list(self.compiled.values()):
            self._compile_imports(tree)
        self.check_names()

    def _parse(self, source, name):
        try:
            tree = super()._parse(source, name)
            compile(tree, name, "exec", dont_inherit=True)  # what only the compiler sees: a return outside a function
        except SyntaxError as error:
            where = "%s line %s" % (_shown(name), error.lineno) if error.lineno else _shown(name)
            raise Wrong("%s: %s: %s" % (where, type(error).__name__, error.msg)) from None
        except ValueError as error:  # null bytes
            raise Wrong("%s: %s" % (_shown(name), error)) from None
        self.compiled[name] = tree
        return tree

    def _try(self, node, names, package, is_main):
        """The script may have an answer to whatever is wrong there."""
        before = len(self.wanted)
        try:
            super()._try(node, names, package, is_main)
        except (Wrong, ImportError):
            raise preimport.Stopped("line %d: an import that may fail" % node.lineno) from None
        finally:
            del self.wanted[before:]

    def _import_from(self, node, names, package):
        place = self.place()
        super()._import_from(node, names, package)
        dotted = node.module or ""
        if node.level:
            parts = (package or "").split(".")
            dotted = ".".join(parts[: len(parts) - node.level + 1] + ([dotted] if dotted else []))
        if dotted != "__main__":
            self.wanted += [(place, dotted, alias.name) for alias in node.names if alias.name != "*"]

    def _compile_imports(self, tree):
        """Of what is imported without a condition, below what could not be understood."""
        for node in tree.body:
            if isinstance(node, ast.Raise):
                return
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._compile(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._compile(node.module)

    def _compile(self, dotted):
        top = dotted.partition(".")[0]
        spec = None if top in sys.builtin_module_names else self._find(top, None)
        if spec is None or not self.is_local(top, spec):
            return
        for _, found in self._chain(dotted):
            if found.has_location and found.origin.endswith(".py") and found.origin not in self.compiled:
                self._compile_imports(self._tree_of(found))

    def may_have_made_it(self):
        """Whether anything was called before the import that fails, which may have set a path or written a module."""
        last = dict(self.above, **{self.file: self.line})
        for path, tree in self.compiled.items():
            for node in tree.body:
                is_above = node.lineno < last.get(path, node.lineno + 1)
                if is_above and not isinstance(node, import_analysis.DEFINITIONS) and any(map(_calls, ast.walk(node))):
                    return True
        return False

    def check_names(self):
        """The early imports are done: is in a module what was imported from it by its name?"""
        for place, dotted, name in self.wanted:
            if not self._has(dotted, name):
                raise Wrong("%s: ImportError: cannot import name %r from %r" % (place, name, dotted))

    def _has(self, dotted, name):
        """True too where that cannot be said."""
        chain = list(self._chain(dotted + "." + name))
        if chain and chain[-1][0] == dotted + "." + name:
            return True
        if not chain or chain[-1][0] != dotted:
            return True
        spec = chain[-1][1]
        if not self.is_local(dotted.partition(".")[0], chain[0][1]):
            module = sys.modules.get(dotted)
            return module is None or _has_attribute(module, name)
        tree = self.compiled.get(spec.origin)
        return tree is None or any(_sets_by_name(each, name) for each in self._trees) or _binds(tree, name)


def _calls(node):
    """But for what many scripts begin with: warnings, logging, an environment variable."""
    if not isinstance(node, ast.Call):
        return False
    root = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in ("warnings", "logging"))


def _has_attribute(module, name):
    try:
        getattr(module, name)
        return True
    except AttributeError:
        return False
    except Exception:  # it is made when it is asked for, and what came of that is the ranks' to say
        return True


DYNAMIC = ("setattr", "globals", "vars", "exec", "eval", "__dict__", "__getattr__", "modules")


def _sets_by_name(tree, name):
    """Does it set such an attribute of something, or in a way that nobody can read?"""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )


def _binds(tree, name):
    """Whether anything in a module may bind that name, wherever it stands."""
    return name.startswith("__") or any(_binds_here(node, name) for node in ast.walk(tree))


def _binds_here(node, name):
    if isinstance(node, ast.Name):
        return node.id in DYNAMIC or (node.id == name and not isinstance(node.ctx, ast.Load))
    if isinstance(node, ast.Attribute):
        return node.attr in DYNAMIC
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(alias.name == "*" or (alias.asname or alias.name.partition(".")[0]) == name for alias in node.names)
    found = (getattr(node, "name", None), getattr(node, "rest", None))  # def, class, except … as, match
    return name in found or "__getattr__" in found


def _shown(path):
    """As the user would name it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
