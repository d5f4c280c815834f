"""The rules of docs and design as functions: a source tree in, sentences about what breaks a rule out.

A tree is ``{path relative to the repository: source text}``; every rule takes one and returns its violations, so that
each can be shown to fail on a small bad tree.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from tests.larger import LARGER, MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_METHODS, MAX_TEST_LINES

Tree = Mapping[str, str]

ROOMS = ("schedules", "tuning_logs", "costmodels", "search", "autotune")
"""From right to left: a room imports itself and the rooms before it."""

ORDER = (
    *("host", "frame", "measure", "importer", "graph", "artifact", "backends", "runtime", "validation", "builder"),
    *("tuning", "report", "exchange", "cli", "contrib"),
)
"""Sub-packages of ``autotune``: each imports itself and those before it. Nothing imports a contribution."""

IMPORTER_ORDER = (
    *("onnx_model", "rewriting", "operators", "operators/contractions", "operators/dynamic"),
    *("fusion", "integers", "low_bits", "generation", "conversion", "live", "layouts", "images", ""),
)
"""Folders of ``autotune/importer``, then its own modules: each imports itself and those before it."""

ORDERS = {"autotune": ORDER, "autotune/importer": IMPORTER_ORDER}

OUTSIDE = ("tests", "research")
"""Folders that the library never imports."""

MAX_FILES_PER_FOLDER = 16
MAX_FILES_AT_TOP = 6
MAX_ARGUMENTS = 7
MAX_BROAD_EXCEPTS_PER_1000_LINES = 0.3
MIN_MIRRORED_SHARE = 0.9
"""Share of the library's modules that have a test file of their own."""

HOMES = {
    "tvm": ("schedules/templates/", "schedules/lower.py", "costmodels/program_features.py", "autotune/"),
    "tvm_ffi": ("schedules/templates/", "schedules/lower.py", "costmodels/program_features.py", "autotune/"),
    "skopt": ("costmodels/", "search/searchers/bayesian.py"),
    "sklearn": ("costmodels/", "search/searchers/bayesian.py"),
    "xgboost": ("costmodels/boosted.py",),
}
"""Where a library may be imported."""

EFFECTS = frozenset(
    {"asyncio", "concurrent", "datetime", "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "pickle"}
    | {"psutil", "resource", "select", "shelve", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile"}
    | {"threading", "time", "urllib"}
)
"""Modules of clocks, files and processes."""
EFFECT_ROOMS = ("autotune", "tuning_logs")

OPTIONAL = frozenset({"cuda", "onnxruntime", "openvino", "psycopg", "ray", "torch"})
"""Packages of the extras: imported where they are used."""

BANNED_WORDS = frozenset(
    {"util", "utils", "helper", "helpers", "manager", "managers", "scheduler", "schedulers"}
    | {"blame", "clerk", "crew", "desk", "island", "islands", "ledger", "nursery", "opener", "outlook", "workshop"}
)
"""Words that say nothing, and words of this project's past that nobody outside of it understands."""


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def walked(module: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module, which nearly every rule looks at."""
    return tuple(ast.walk(module))


def library(tree: Tree) -> Iterator[tuple[str, ast.Module]]:
    """The sources of the five rooms."""
    for path, source in tree.items():
        if path.split("/")[0] in ROOMS:
            yield path, parsed(source)


def imports(path: str, nodes: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Every imported module below a node, absolute; for ``from a import b`` both ``a`` and ``a.b``."""
    package = PurePosixPath(path).parent.parts
    for node in walked(nodes) if isinstance(nodes, ast.Module) else ast.walk(nodes):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            base = ".".join((*package[: len(package) - node.level + 1], *filter(None, [node.module])))
            module = base if node.level else node.module or ""
            yield module, node
            for alias in node.names:
                yield f"{module}.{alias.name}", node


def import_direction(tree: Tree) -> list[str]:
    """A room imports only itself and rooms to its right; nobody imports tests or research."""
    complaints = []
    for path, module in library(tree):
        room = path.split("/")[0]
        for name, node in imports(path, module):
            other = name.split(".")[0]
            wrong_room = other in ROOMS and ROOMS.index(other) > ROOMS.index(room)
            if wrong_room or other in OUTSIDE:
                complaints.append(f"{path}:{node.lineno} imports {name}, which lies to the left of {room}")
    return complaints


def sub_package_order(tree: Tree) -> list[str]:
    """A folder that is listed in ``ORDERS`` imports only itself and those before it, in functions too."""
    complaints = []
    for home, order in ORDERS.items():
        for path, module in library(tree):
            own = listed(module_name(path), home, order)
            folder = str(PurePosixPath(path).parent)
            if own not in order:
                if folder.startswith(f"{home}/"):
                    complaints.append(f"{path}: {folder} is missing in tests/architecture.py: ORDERS")
                continue
            for name, node in imports(path, module):
                other = listed(name, home, order)
                if other in order and order.index(other) > order.index(own):
                    complaints.append(f"{path}:{node.lineno} imports {name}, which comes after {own}")
                if own == other == "contrib" and name.split(".")[2:3] not in ([], [path.split("/")[2]]):
                    complaints.append(f"{path}:{node.lineno} imports {name}, which is another contribution")
    return sorted(set(complaints))


def listed(name: str, home: str, order: Sequence[str]) -> str | None:
    """The folder of ``order`` that module ``name`` lies in; "" for a module of ``home`` itself; None outside."""
    inside = name.replace(".", "/").removeprefix(f"{home}/")
    if inside == name.replace(".", "/"):
        return None
    folders = (folder for folder in order if folder and f"{inside}/".startswith(f"{folder}/"))
    return max(folders, key=len, default="" if "/" not in inside else None)


def folder_sizes(tree: Tree) -> list[str]:
    """A folder holds about a dozen modules, and ``autotune`` itself a handful."""
    folders: dict[str, int] = {}
    for path, _ in library(tree):
        if not path.endswith("__init__.py"):
            folder = str(PurePosixPath(path).parent)
            folders[folder] = folders.get(folder, 0) + 1
    return [
        f"{folder}/ has {count} modules, more than {limit}"
        for folder, count in sorted(folders.items())
        if count > (limit := MAX_FILES_AT_TOP if folder == "autotune" else MAX_FILES_PER_FOLDER)
    ]


def unique_names(tree: Tree) -> list[str]:
    """No two modules of the library have one file name."""
    places: dict[str, list[str]] = {}
    for path, _ in library(tree):
        places.setdefault(PurePosixPath(path).name, []).append(path)
    return [
        f"{name} is the name of {' and '.join(paths)}"
        for name, paths in sorted(places.items())
        if len(paths) > 1 and name not in ("__init__.py", "__main__.py")
    ]


def mirror_of(path: str) -> str:
    """Where a module's tests lie: ``autotune/host/pages.py`` → ``tests/autotune_tests/host_tests/test_pages.py``."""
    *folders, name = PurePosixPath(path).parts
    return "/".join(["tests", *(f"{folder}_tests" for folder in folders), f"test_{name}"])


def mirrored_tests(tree: Tree) -> list[str]:
    """Nine of ten modules have a test file in the mirrored place; only judged where the tree has tests at all."""
    if not any(re.match(r"tests/\w+_tests/", path) for path in tree):
        return []
    modules = [path for path, _ in library(tree) if PurePosixPath(path).name not in ("__init__.py", "__main__.py")]
    missing = [path for path in modules if mirror_of(path) not in tree]
    if len(missing) <= (1.0 - MIN_MIRRORED_SHARE) * len(modules):
        return []
    return [f"{path} has no {mirror_of(path)}" for path in missing]


def arguments(tree: Tree) -> list[str]:
    """No function takes more than ``MAX_ARGUMENTS`` arguments; dataclasses, which have no ``__init__`` here, may."""
    complaints = []
    for path, module in library(tree):
        for node in walked(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([parameter for parameter in parameters if parameter.arg not in ("self", "cls")])
                if count > MAX_ARGUMENTS and not is_command(node):
                    complaints.append(
                        f"{path}:{node.lineno} {node.name} takes {count} arguments, more than {MAX_ARGUMENTS}"
                    )
    return complaints


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a command of the CLI, whose arguments are the command's options."""
    return any("command(" in ast.unparse(decorator) for decorator in node.decorator_list)


def broad_excepts(tree: Tree) -> list[str]:
    """Few handlers catch every exception, and each says why in a comment on its line or the next."""
    places, lines = [], 0
    complaints = []
    for path, module in library(tree):
        text = tree[path].splitlines()
        lines += len(text)
        for node in walked(module):
            if isinstance(node, ast.ExceptHandler) and is_broad(node):
                places.append(f"{path}:{node.lineno}")
                if not any("#" in line for line in text[node.lineno - 1 : node.lineno + 1]):
                    complaints.append(f"{path}:{node.lineno} catches every exception and does not say why")
    allowed = max(1, int(MAX_BROAD_EXCEPTS_PER_1000_LINES * lines / 1000))
    if len(places) > allowed:
        complaints.append(f"{len(places)} handlers catch every exception, more than {allowed}: {', '.join(places)}")
    return complaints


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches ``Exception`` or ``BaseException``."""
    return handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException")


def private_names(tree: Tree) -> list[str]:
    """No module imports a private name of another."""
    return [
        f"{path}:{node.lineno} imports {alias.name}, which is private to {node.module}"
        for path, module in library(tree)
        for node in walked(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOMS
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


KIND_HOMES = ("schedules/target.py", "schedules/template_sets.py", "autotune/backends/backend_catalog.py")
"""Where a kind of target may be looked at."""


def target_kinds(tree: Tree) -> list[str]:
    """Nothing but the registries compares a target's kind: what differs between kinds is a method of its backend."""
    complaints = []
    for path, module in library(tree):
        if path in KIND_HOMES:
            continue
        for node in walked(module):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                kinds = any(side.endswith(".kind") for side in sides)
                if kinds and any(side in ("'cuda'", "'llvm'") for side in sides):
                    complaints.append(f"{path}:{node.lineno} compares {ast.unparse(node)}; ask the target's backend")
    return complaints


def library_homes(tree: Tree) -> list[str]:
    """TVM, scikit-optimize and XGBoost are imported only in their homes."""
    return [
        f"{path}:{node.lineno} imports {name}; only {', '.join(HOMES[name.split('.')[0]])} may"
        for path, module in library(tree)
        for name, node in imports(path, module)
        if name.split(".")[0] in HOMES and not path.startswith(HOMES[name.split(".")[0]])
    ]


def pure_rooms(tree: Tree) -> list[str]:
    """No clock, file or process outside ``EFFECT_ROOMS``."""
    complaints = []
    for path, module in library(tree):
        if path.split("/")[0] in EFFECT_ROOMS:
            continue
        for name, node in imports(path, module):
            if name.split(".")[0] in EFFECTS:
                complaints.append(f"{path}:{node.lineno} imports {name}: no clocks, files or processes here")
        complaints += [
            f"{path}:{call.lineno} calls {call.id}(): no clocks, files or processes here"
            for call in calls(module)
            if call.id in ("open", "input")
        ]
    return complaints


def calls(module: ast.Module) -> Iterator[ast.Name]:
    """Plain names that are called."""
    for node in walked(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func


def environment(tree: Tree) -> list[str]:
    """Environment variables are touched only in the CLI."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    complaints = []
    for path, module in library(tree):
        if path.startswith("autotune/cli/"):
            continue
        complaints += [
            f"{path}:{node.lineno} uses os.{node.attr}; read it in autotune/cli and pass it on"
            for node in walked(module)
            if isinstance(node, ast.Attribute) and node.attr in names
        ]
        complaints += [
            f"{path}:{node.lineno} imports {name}; read it in autotune/cli and pass it on"
            for name, node in imports(path, module)
            if name.split(".")[0] == "os" and name.split(".")[-1] in names
        ]
    return complaints


def printing(tree: Tree) -> list[str]:
    """Only the CLI prints."""
    return [
        f"{path}:{name.lineno} calls {name.id}(); log it, or return it to autotune/cli"
        for path, module in library(tree)
        for name in calls(module)
        if name.id in ("print", "pprint") and not path.startswith("autotune/cli/")
    ]


def sizes(tree: Tree) -> list[str]:
    """Files and functions stay short, in the tests too; a class of the library has few public methods."""
    complaints = []
    for path, source in tree.items():
        inside, larger = path.split("/")[0] in ROOMS, LARGER.get(path, {})
        counts = [("", 1, source.count("\n"), MAX_FILE_LINES if inside else MAX_TEST_LINES, "lines")]
        for node in walked(parsed(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                counts.append((node.name, node.lineno, length, MAX_FUNCTION_LINES, "lines"))
            if isinstance(node, ast.ClassDef) and inside:
                public = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name[0] != "_"]
                counts.append((node.name, node.lineno, len(public), MAX_METHODS, "public methods"))
        complaints += [
            f"{path}:{line} {name} has {count} {unit}, more than {larger.get(name, limit)}"
            for name, line, count, limit, unit in counts
            if count > larger.get(name, limit)
        ]
    return complaints


def names_only(tree: Tree) -> list[str]:
    """An ``__init__.py`` holds a docstring, imports and assignments; the one function is a lazy ``__getattr__``."""
    complaints = []
    for path, module in library(tree):
        if not path.endswith("__init__.py"):
            continue
        for node in module.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
            lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if not (docstring or names or lazy or typing):
                complaints.append(f"{path}:{node.lineno} is more than names; move it into a module")
    return complaints


def local_imports(tree: Tree) -> list[str]:
    """An import inside a function is of an optional package, stands in a catalogue or the CLI, or says why.

    The reason is a comment on its line, above it, or above the function.
    """
    complaints = []
    for path, module in library(tree):
        if re.fullmatch(
            r"(\w+_)?catalog\.py|\w+_command\.py|__init__\.py", PurePosixPath(path).name
        ) or path.startswith("autotune/cli/"):
            continue  # catalogues and the CLI import only what was asked for, so that starting stays quick
        lines = tree[path].splitlines()
        for function in walked(module):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for name, node in imports(path, function):
                above = (lines[line - 2].lstrip() for line in (node.lineno, function.lineno))
                said = "#" in lines[node.lineno - 1] or any(line.startswith("#") for line in above)
                if name.split(".")[0] not in OPTIONAL and not said:
                    complaints.append(f"{path}:{node.lineno} {ast.unparse(node)}: move it up, or say why in a comment")
    return sorted(set(complaints))


def import_cycles(tree: Tree) -> list[str]:
    """Modules that import each other, also where only a type checker sees it."""
    modules = {path: module_name(path) for path, _ in library(tree)}
    known = set(modules.values())
    edges = {
        modules[path]: {name for name, _ in imports(path, module_level(module))} & known - {modules[path]}
        for path, module in library(tree)
    }
    complaints: list[str] = []
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            complaints.append(" → ".join((*trail[trail.index(name) :], name)))
        elif name not in finished:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            finished.add(name)

    for name in sorted(edges):
        visit(name, ())
    return complaints


def module_name(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_level(module: ast.Module) -> ast.Module:
    """The imports of a module that stand in no function."""
    statements: list[ast.stmt] = []
    todo: list[ast.AST] = [module]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            statements.append(node)
        todo += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef)]
    return ast.Module(statements, [])


def names(tree: Tree) -> list[str]:
    """No module, class or function is called a util, helper, manager or scheduler."""
    complaints = []
    for path, module in library(tree):
        complaints += [
            f"{path}: {word!r} says nothing; name what it does" for word in words(module_name(path)) & BANNED_WORDS
        ]
        for node in walked(module):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                complaints += [
                    f"{path}:{node.lineno} {node.name}: {word!r} says nothing; name what it does"
                    for word in words(node.name) & BANNED_WORDS
                ]
    return complaints


def words(name: str) -> set[str]:
    """The words of a snake_case, dotted or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


LOG_READERS = {"records": 1, "best": 1, "ranked": 1, "fastest": 2}
"""Method of a tuning log that reads records → where its ``space`` stands among the arguments."""

ONLY_SHOWN = ("autotune/cli/", "autotune/contrib/exchange/", "tuning_logs/")
"""Packages that show records, or pass them on, and act on none."""


def checked_records(tree: Tree) -> list[str]:
    """Whoever acts on a log's records names the space whose configs it takes."""
    complaints = []
    for path, module in library(tree):
        if path.startswith(ONLY_SHOWN):
            continue
        for node in walked(module):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            place, owner = LOG_READERS.get(node.func.attr), ast.unparse(node.func.value)
            named = any(keyword.arg == "space" for keyword in node.keywords)
            if place is not None and owner.endswith(("log", "store")) and len(node.args) <= place and not named:
                complaints.append(f"{path}:{node.lineno} {ast.unparse(node)}: name the space of the configs")
    return complaints


def unfinished(tree: Tree) -> list[str]:
    """No unfinished marks, no swallowed exceptions."""
    complaints = []
    for path, module in library(tree):
        for number, line in enumerate(tree[path].splitlines(), start=1):
            if re.search(r"#.*\b(TODO|FIXME|XXX)\b", line):
                complaints.append(f"{path}:{number} is unfinished; finish it")
        complaints += [
            f"{path}:{node.lineno} swallows every exception; name the ones you expect"
            for node in walked(module)
            if isinstance(node, ast.ExceptHandler)
            and is_broad(node)
            and all(isinstance(step, (ast.Pass, ast.Continue)) for step in node.body)
        ]
    return complaints


RULES = (
    *(import_direction, sub_package_order, folder_sizes, unique_names, mirrored_tests, arguments, broad_excepts),
    *(private_names, target_kinds, library_homes, pure_rooms, environment, printing, sizes, names_only),
    *(local_imports, import_cycles, names, checked_records, unfinished),
)
