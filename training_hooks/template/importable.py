"""Decides whether the next ranks would fail in their imports, as far as that is certain (`rehearsal`).

The restart of a working script must never be refused. So an error counts only if no earlier statement can have changed
its cause: a path that is set, a module that is written, a patched name, a condition, a handler.
"""

import ast
import os
import sys

from . import import_analysis, preimport


def judged(careful):
    """`refused` with the error of the next ranks before the script's first own statement, if that is certain."""
    try:
        careful.run()
    except Wrong as wrong:
        return {"refused": str(wrong)}
    except ImportError as error:
        if careful.may_have_made_it():
            return {"unchecked": "%s: %s" % (type(error).__name__, error)}
        return {"refused": "%s: %s: %s" % (careful.place(), type(error).__name__, error)}
    except Exception as error:  # the fault may be in this check; the script may be correct
        return {"unchecked": "%s: %s" % (type(error).__name__, error)}
    return {"parked": len(careful.done)}


class Wrong(Exception):
    """An error of the script, with its file and line."""


class Careful(preimport.Early):
    """Early imports whose errors are reported. The analysis ends at a statement that it does not understand
    (`template.preimport.Stopped`), because an import after it may mean something else. After that only files that the
    script imports in any case are compiled."""

    def __init__(self, invocation, skip=None, begin_again=None):
        super().__init__(invocation, skip, begin_again)
        self.imported_names, self.compiled = [], {}
        """`imported_names`: (place, module, name) of each import by name. `compiled`: the syntax trees by file."""

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
            compile(tree, name, "exec", dont_inherit=True)  # finds what only the compiler rejects: return outside a def
        except SyntaxError as error:
            where = "%s line %s" % (_shown(name), error.lineno) if error.lineno else _shown(name)
            raise Wrong("%s: %s: %s" % (where, type(error).__name__, error.msg)) from None
        except ValueError as error:  # the file contains null bytes
            raise Wrong("%s: %s" % (_shown(name), error)) from None
        self.compiled[name] = tree
        return tree

    def _try(self, node, names, package, is_main):
        """Stops at an error inside a try statement, since the script may handle it."""
        before = len(self.imported_names)
        try:
            super()._try(node, names, package, is_main)
        except (Wrong, ImportError):
            raise preimport.Stopped("early imports end at line %d, whose import may fail" % node.lineno) from None
        finally:
            del self.imported_names[before:]

    def _import_from(self, node, names, package):
        place = self.place()
        super()._import_from(node, names, package)
        dotted = node.module or ""
        if node.level:
            parts = (package or "").split(".")
            dotted = ".".join(parts[: len(parts) - node.level + 1] + ([dotted] if dotted else []))
        if dotted != "__main__":
            self.imported_names += [(place, dotted, alias.name) for alias in node.names if alias.name != "*"]

    def _compile_imports(self, tree):
        """Compiles unconditional imports after the statement at which the analysis has stopped."""
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
        """Whether a call before the failing import may have set a path or written a module."""
        last = dict(self.above, **{self.file: self.line})
        for path, tree in self.compiled.items():
            for node in tree.body:
                is_above = node.lineno < last.get(path, node.lineno + 1)
                if is_above and not isinstance(node, import_analysis.DEFINITIONS) and any(map(_calls, ast.walk(node))):
                    return True
        return False

    def check_names(self):
        """After the early imports: checks that each name imported from a module exists there."""
        for place, dotted, name in self.imported_names:
            if not self._has(dotted, name):
                raise Wrong("%s: ImportError: cannot import name %r from %r" % (place, name, dotted))

    def _has(self, dotted, name):
        """Whether the module has the name; True also if that cannot be decided."""
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
    """Whether it is a call, other than those that many scripts begin with: warnings, logging, an environment
    variable."""
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
    except Exception:  # the module creates the name on request, and fails: the ranks will report that
        return True


DYNAMIC = ("setattr", "globals", "vars", "exec", "eval", "__dict__", "__getattr__", "modules")


def _sets_by_name(tree, name):
    """Whether it sets such an attribute of an object, or in a way that cannot be analyzed."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )


def _binds(tree, name):
    """Whether any statement of a module may bind that name."""
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
    """The path as the user would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") or os.getcwd() == os.sep else relative
