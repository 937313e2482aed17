"""Reads a script's top level, without running it, for statements that cannot change the meaning of a later import.

A template may import early only what the script would import anyway, in its order and with its meaning. A call of
unknown code before an import could change that (sys.path, os.environ, an import hook). So only harmless statements are
accepted: definitions, constants, and calls of functions listed below or of objects that they return. Any other
statement ends the analysis, which costs time at each start of a worker process, but never correctness.
"""

import ast
import builtins

DANGEROUS = {"exec", "eval", "compile", "__import__", "setattr", "delattr", "globals", "locals", "vars", "breakpoint"}
BUILTINS = {name for name in dir(builtins) if name not in DANGEROUS}
HARMLESS = (
    "abc.", "argparse.", "collections.", "contextlib.", "copy.", "dataclasses.", "datetime.", "enum.", "functools.",
    "itertools.", "json.", "logging.", "math.", "operator.", "os.path.", "pathlib.", "random.", "re.", "string.",
    "tempfile.", "textwrap.", "time.", "typing.", "uuid.", "warnings.",
    "os.getenv", "os.environ.get", "os.getcwd", "os.makedirs", "os.cpu_count", "os.getpid", "os.listdir",
    "multiprocessing.set_start_method", "torch.multiprocessing.set_start_method", "platform.",
    "numpy.", "torch.manual_seed", "torch.device", "torch.set_default_dtype", "torch.set_float32_matmul_precision",
    "torch.set_num_threads", "torch.nn.", "torch.optim.", "torch.tensor", "torch.no_grad", "torch.inference_mode",
    "torch.compile", "torch.jit.", "torch.autocast", "torch.cuda.amp.", "torch.amp.", "torch.backends.",
    "sys.exit", "sys.version_info", "sys.stdout.", "sys.stderr.",
)  # fmt: skip
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Names:
    """The meaning of the names of one module's top level, as far as the analysis has come: the dotted path of an import
    from an installation, "" for a harmless object, None if unknown."""

    def __init__(self):
        self.meaning = {}

    def dotted(self, node):
        """The dotted path, such as `torch.nn.Linear`, that an expression means; "" below a harmless object; None if
        unknown."""
        if isinstance(node, ast.Name):
            if node.id in self.meaning:
                return self.meaning[node.id]
            return "builtins." + node.id if node.id in BUILTINS else None
        if isinstance(node, ast.Attribute):
            root = self.dotted(node.value)
            return root + "." + node.attr if root else root
        if isinstance(node, (ast.Call, ast.Subscript, ast.Constant, ast.JoinedStr, ast.List, ast.Dict, ast.BinOp)):
            return ""
        return None

    def may_call(self, function):
        path = self.dotted(function)
        if path is None:
            return False
        return path == "" or path.startswith("builtins.") or any(path.startswith(known) for known in HARMLESS)

    def is_harmless(self, node):
        """Whether evaluating this expression cannot change the meaning of an import."""
        if isinstance(node, ast.Lambda):
            return all(self.is_harmless(each) for each in node.args.defaults)
        if isinstance(node, ast.Call) and not self.may_call(node.func):
            return False
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        return all(self.is_harmless(child) for child in ast.iter_child_nodes(node))

    def allows(self, statement):
        """The same for a statement without an import; the names that it binds are recorded."""
        if isinstance(statement, DEFINITIONS):
            return self._allows_definition(statement)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            return self._allows_assignment(statement)
        if isinstance(statement, (ast.Pass, ast.Global, ast.Nonlocal)):
            return True
        if isinstance(statement, (ast.Expr, ast.Assert)):
            return self.is_harmless(statement)
        if isinstance(statement, ast.Delete):
            return all(isinstance(target, ast.Name) for target in statement.targets)
        if isinstance(statement, (ast.If, ast.For, ast.With, ast.Try)):
            return self._allows_block(statement)
        return False

    def _allows_definition(self, node):
        evaluated = list(node.decorator_list)
        if isinstance(node, ast.ClassDef):
            evaluated += node.bases + [keyword.value for keyword in node.keywords]
            inner = Names()
            inner.meaning = dict(self.meaning)
            body = all(inner.allows(each) for each in node.body)
        else:
            evaluated += node.args.defaults + [each for each in node.args.kw_defaults if each]
            body = True
        called = all(self._is_known_decorator(each) for each in node.decorator_list)
        self.meaning[node.name] = None
        return body and called and all(self.is_harmless(each) for each in evaluated)

    def _is_known_decorator(self, node):
        path = self.dotted(node.func if isinstance(node, ast.Call) else node)
        return bool(path) or (isinstance(node, ast.Attribute) and node.attr in ("setter", "getter", "deleter"))

    def _allows_assignment(self, node):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and not self.is_harmless(node.value):
            return False
        return all(self._binds(target) for target in targets)

    def _binds(self, target):
        if isinstance(target, ast.Name):
            self.meaning[target.id] = ""
            return True
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(self._binds(each) for each in target.elts)
        if isinstance(target, ast.Starred):
            return self._binds(target.value)
        path = self.dotted(target.value if isinstance(target, ast.Subscript) else target)
        return path == "" or bool(path and path.startswith("torch.backends."))

    def _allows_block(self, node):
        for field in ("target", "optional_vars"):
            if getattr(node, field, None) is not None and not self._binds(getattr(node, field)):
                return False
        for item in getattr(node, "items", ()):
            if not self.is_harmless(item.context_expr) or (item.optional_vars and not self._binds(item.optional_vars)):
                return False
        for field in ("test", "iter"):
            if hasattr(node, field) and not self.is_harmless(getattr(node, field)):
                return False
        bodies = [getattr(node, field, []) for field in ("body", "orelse", "finalbody")]
        bodies += [handler.body for handler in getattr(node, "handlers", ())]
        return all(self.allows(each) for body in bodies for each in body)


def environment_assignment(node, names):
    """(name, value, only if unset) of a constant `os.environ[k] = v` or `os.environ.setdefault(k, v)`, else None."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        index = target.slice.value if type(target.slice).__name__ == "Index" else target.slice
        where, pair, weak = target.value, [index, node.value], False
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        call = node.value
        if call.func.attr != "setdefault" or len(call.args) != 2:
            return None
        where, pair, weak = call.func.value, call.args, True
    else:
        return None
    constant = all(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in pair)
    if names.dotted(where) != "os.environ" or not constant:
        return None
    return pair[0].value, pair[1].value, weak


def is_main_test(test):
    """Whether it is `__name__ == "__main__"`, either way round."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = [test.left, test.comparators[0]]
    found = [each.id for each in sides if isinstance(each, ast.Name)]
    return found == ["__name__"] and any(isinstance(each, ast.Constant) and each.value == "__main__" for each in sides)


def is_type_checking(test):
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def imports_in(statement):
    return any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(statement))


def mentions(tree, prefixes):
    """Whether a string constant in the tree starts with one of these prefixes."""
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(prefixes)
        for node in ast.walk(tree)
    )
