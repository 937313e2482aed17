"""The imports that a template does before it waits, so that a worker process starts with them done.

They are the script's own, in its order, up to the first statement that could change the meaning of an import
(`template.import_analysis`). The rules:

- A name means what it will mean to the script: its folder (the working directory for `-m`) is first on sys.path during
  the imports, as it will be later.
- Only what an installation contains (the standard library, site-packages) is imported. The user's own modules are read,
  not run, so that a fix in them is effective at the next start; their imports count as the script's.
- Modules that start threads or touch devices or MPI are not imported, nor those that read their rank during the import
  (`template.rank_env_audit`).
- If an import would run a user's module or an excluded one indirectly, no trace of it may stay: this process starts
  over (exec, same command line) and leaves that import to the worker processes.
"""

import ast
import gc
import importlib.machinery
import os
import sys

from . import fork_safety, import_analysis, rank_env_audit

SKIP = "OUTRIDER_TEMPLATE_SKIP"
DENIED = {
    "jax", "jaxlib", "ray", "mpi4py", "horovod", "cupy", "nvidia.dali", "torch_xla", "habana_frameworks",
    "torch_npu", "pyspark", "dask_cuda", "rmm", "cudf", "bodo",
}  # fmt: skip
BEHIND = ("torch._dynamo", "torch.profiler._cupti_monitor", "torch.utils.serialization.config", "numpy.random",
          "multiprocessing.queues", "multiprocessing.synchronize", "multiprocessing.popen_fork")  # fmt: skip
"""Modules that init_process_group, DDP, the first backward, step, save and DataLoader import by themselves (measured
with torch 2.13: 823, 0, 4, 0, 2 and 3 modules)."""
READ_AT_IMPORT = ("TORCHDYNAMO", "TORCHINDUCTOR", "TORCH_COMPILE", "TORCH_LOGS", "TORCH_TRACE")
"""Variables that torch._dynamo reads at its import; a script that names one may set it before that."""
STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class Stopped(Exception):
    """The analysis reached a statement that could change the meaning of an import."""


class Refusal:
    """The loader of a module that a template must not run."""

    def __init__(self, name, refuse):
        self.name, self.refuse = name, refuse

    def create_module(self, spec):
        self.refuse(self.name)

    def exec_module(self, module):
        self.refuse(self.name)


class Guard:
    """Is first on sys.meta_path during the early imports. It finds what the other finders find, but lets no module run
    that is the user's own or excluded."""

    def __init__(self, is_forbidden, refuse):
        self.is_forbidden, self.refuse = is_forbidden, refuse

    def find_spec(self, name, path=None, target=None):
        if path is not None and name not in DENIED:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if self.is_forbidden(name, spec):
                    spec.loader = Refusal(name, self.refuse)
                return spec
        return None


def first_folder(invocation):
    """The folder that Python will put first on sys.path, or None (-P)."""
    if getattr(sys.flags, "safe_path", False) or invocation.kind == "stdin":
        return None
    if invocation.kind == "script":
        return os.path.dirname(os.path.realpath(invocation.target))
    return os.getcwd()


def _folders(spec):
    """The folders of a package. Those of a namespace package come from its parent, which is not imported here."""
    found = spec.submodule_search_locations
    return getattr(found, "_path", found)


def _namespace(name, path):
    folders = [os.path.join(each, name.rpartition(".")[2]) for each in path or ()]
    folders = [folder for folder in folders if os.path.isdir(folder)]
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True) if folders else None
    if spec is not None:
        spec.submodule_search_locations = folders
    return spec


def _installed(path):
    return path.startswith(STANDARD) or "/site-packages/" in path or "/dist-packages/" in path


class Early:
    """One pass of early imports. `done` lists the imported modules, `notes` the others with the reason."""

    def __init__(self, invocation, skip=None, begin_again=None):
        self.invocation, self.skip, self.begin_again = invocation, dict(skip or {}), begin_again
        self.folder = first_folder(invocation)
        self.own_package = invocation.target.partition(".")[0] if invocation.kind == "module" else None
        self.done, self.notes = [], []
        self.tasks = {}
        self.current = ""
        self._read = set()
        self._trees = []
        self.file, self.line = "", 0
        """Number of the line that is being read."""
        self.above = []
        """Lines of the imports that lead to the current module, by file, the script's first."""

    # -- the meaning of a name ----------------------------------------------------------------------------------------
    def is_local(self, name, spec):
        """Whether a module is the user's own code, which only worker processes run."""
        if name.partition(".")[0] == self.own_package:
            return True
        places = [spec.origin] if spec.has_location else list(_folders(spec) or ())
        for place in places:
            folder = os.path.dirname(os.path.abspath(place))
            beside = self.folder is not None and self.folder in (folder, os.path.dirname(folder))
            if beside or not _installed(os.path.abspath(place) + os.sep):
                return True
        return False

    def is_forbidden(self, name, spec):
        return name in DENIED or self.is_local(name, spec)

    # -- the pass -----------------------------------------------------------------------------------------------------
    def run(self):
        guard = Guard(self.is_forbidden, self._refuse)
        collecting = gc.isenabled()
        gc.disable()
        sys.meta_path.insert(0, guard)
        if self.folder is not None:
            sys.path.insert(0, self.folder)
        try:
            self._read_script()
            self._behind_the_back()
        finally:
            sys.meta_path.remove(guard)
            if self.folder in sys.path:
                sys.path.remove(self.folder)
            if collecting:
                gc.enable()

    def _read_script(self):
        try:
            for tree, package in self._sources():
                self._walk(tree.body, import_analysis.Names(), package, True)
        except Stopped as stop:
            self.notes.append(str(stop))
        except (SyntaxError, ValueError, OSError) as error:
            self.notes.append("%s cannot be read: %s" % (self.invocation.target, error))

    def _sources(self):
        """The modules that Python will run, in its order."""
        kind, target = self.invocation.kind, self.invocation.target
        if kind == "code":
            yield self._parse(target.encode(), "-c"), None
        elif kind == "script" and not os.path.isdir(target):
            with open(target, "rb") as file:
                yield self._parse(file.read(), target), None
        elif kind == "module":
            for name, spec in self._chain(target):
                if spec.has_location and spec.origin.endswith(".py"):
                    self._read.add(name)
                    yield self._tree_of(spec), name if spec.submodule_search_locations else name.rpartition(".")[0]

    def _chain(self, dotted):
        """(name, spec) of each package on the path and of the module itself, found without importing any."""
        path, name = None, ""
        for part in dotted.split("."):
            name = name + "." + part if name else part
            spec = self._find(name, path)
            if spec is None:
                return
            yield name, spec
            path = _folders(spec)
            if path is None:
                return

    @staticmethod
    def _find(name, path):
        for finder in sys.meta_path:
            if not isinstance(finder, Guard) and hasattr(finder, "find_spec"):
                try:
                    spec = finder.find_spec(name, path)
                except KeyError:  # a namespace package in a package that is not imported: its folders need that import
                    spec = _namespace(name, path)
                if spec is not None:
                    return spec
        return None

    def _parse(self, source, name):
        tree = ast.parse(source, name)
        self.file = name
        self._trees.append(tree)
        return tree

    def _tree_of(self, spec):
        with open(spec.origin, "rb") as file:
            return self._parse(file.read(), spec.origin)

    # -- statements ---------------------------------------------------------------------------------------------------
    def _walk(self, body, names, package, is_main):
        for node in body:
            self.line = node.lineno
            if isinstance(node, ast.Import):
                for alias in node.names:
                    meaning = self._import(alias.name)
                    bound = alias.asname or alias.name.partition(".")[0]
                    known = meaning and (alias.name if alias.asname else bound)
                    names.meaning[bound] = known
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, names, package)
            elif isinstance(node, ast.If) and import_analysis.is_type_checking(node.test):
                self._walk(node.orelse, names, package, is_main)
            elif isinstance(node, ast.If) and import_analysis.is_main_test(node.test):
                self._walk(node.body if is_main else node.orelse, names, package, is_main)
            elif isinstance(node, ast.Try) and import_analysis.imports_in(node):
                self._try(node, names, package, is_main)
            elif not self._sets_environment(node, names):
                if import_analysis.imports_in(node) and not isinstance(node, import_analysis.DEFINITIONS[:2]):
                    raise Stopped("early imports end at line %d, which imports under a condition" % node.lineno)
                if not names.allows(node):
                    raise Stopped("early imports end at line %d, which could change what an import means" % node.lineno)

    def _sets_environment(self, node, names):
        found = import_analysis.environment_assignment(node, names)
        if found is None:
            return False
        name, value, weak = found
        if not (weak and name in os.environ):
            os.environ[name] = value
        return True

    def _try(self, node, names, package, is_main):
        """Follows a try statement as the script would: the handlers run if an import of the body fails."""
        try:
            self._walk(node.body, names, package, is_main)
            self._walk(node.orelse, names, package, is_main)
        except ImportError:
            if len(node.handlers) != 1:
                raise Stopped(
                    "early imports end at line %d, whose try statement has several handlers" % node.lineno
                ) from None
            self._walk(node.handlers[0].body, names, package, is_main)
        self._walk(node.finalbody, names, package, is_main)

    # -- imports ------------------------------------------------------------------------------------------------------
    def _import(self, dotted, names=()):
        """Imports a module if it may; returns whether it comes from an installation. A user's own module is read."""
        top = dotted.partition(".")[0]
        spec = None if top in sys.builtin_module_names else self._find(top, None)
        if spec is not None and self.is_local(top, spec):
            self._read_local(dotted, names)
            return None
        if top in self.skip or top in DENIED or dotted in DENIED:
            if top not in self.skip:
                self.notes.append("%s is imported by each worker process" % dotted)
            return True
        self._load(dotted, names)
        return True

    def _load(self, dotted, names=()):
        self.current = dotted
        before = _tasks()
        try:
            with rank_env_audit.Watch(self._reads_its_rank):
                __import__(dotted, {}, {}, list(names))
        except ImportError:
            raise
        except BaseException as error:  # a half imported module must not stay in the template
            self._refuse("%s: %s" % (type(error).__name__, error))
        self.done.append(dotted)
        if _tasks() > before:
            fork_safety.end_pools()  # OpenBLAS's pool, which comes with numpy, is not a problem
            if _tasks() > before:
                self.tasks[dotted] = _tasks() - before

    def _import_from(self, node, names, package):
        dotted, imported = node.module or "", [alias.name for alias in node.names]
        if node.level:
            if package is None:
                raise Stopped("early imports end at line %d, which is a relative import in a script" % node.lineno)
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            self._read_local(".".join(base + ([dotted] if dotted else [])), imported)
            meaning = None
        else:
            meaning = self._import(dotted, imported)
        for alias in node.names:
            names.meaning[alias.asname or alias.name] = meaning and dotted + "." + alias.name

    def _read_local(self, dotted, imported):
        """Reads a user's own module: its imports count as made here, and its statements may matter too."""
        self.above.append((self.file, self.line))
        chain = list(self._chain(dotted))
        if chain and chain[-1][0] == dotted and chain[-1][1].submodule_search_locations:
            for name in imported:
                chain += [each for each in self._chain(dotted + "." + name) if each[0] == dotted + "." + name]
        for name, spec in chain:
            if name in self._read:
                continue
            self._read.add(name)
            if not spec.has_location:
                continue
            if not spec.origin.endswith(".py"):
                raise Stopped("early imports end at %s, which is the user's own module and has no source" % name)
            package = name if spec.submodule_search_locations else name.rpartition(".")[0]
            self._walk(self._tree_of(spec).body, import_analysis.Names(), package, False)
            self.file, self.line = self.above[-1]
        self.above.pop()

    def _behind_the_back(self):
        if "torch" not in sys.modules or any(import_analysis.mentions(tree, READ_AT_IMPORT) for tree in self._trees):
            return
        before = set(os.environ)
        for dotted in BEHIND:
            if dotted in self.skip or (dotted.startswith("numpy") and "numpy" not in sys.modules):
                continue
            try:
                self._load(dotted)
            except ImportError:
                pass
        for name in set(os.environ) - before:  # torch._dynamo sets TORCHINDUCTOR_CACHE_DIR
            del os.environ[name]

    def _reads_its_rank(self, name):
        self._refuse("it reads %s while it is imported" % name)

    def _refuse(self, what):
        """Never returns, because a half imported module must not stay."""
        culprit = self.current if self.current in BEHIND else self.current.partition(".")[0]
        self.begin_again(culprit, what)
        raise ImportError(what)


def _tasks():
    return len(os.listdir("/proc/self/task"))
