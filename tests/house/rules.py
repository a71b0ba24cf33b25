"""The house rules that a program can check. Each rule takes the modules of the package and yields findings."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.house.tree import Module

MAX_COLLABORATORS = 8
SMALL_FILE_LINES = 60
# Question words and indefinite persons: a docstring opens with a verb and its object, or with a noun phrase.
REFUSED_OPENINGS = frozenset(
    (
        *("what", "who", "whom", "whose", "whether", "where", "how", "which", "why", "when", "of"),
        *("nobody", "somebody", "whoever", "anybody", "everybody", "nothing"),
    )
)


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule."""

    module: Module
    line: int
    subject: str  # the name that an exception gives
    text: str

    def __str__(self) -> str:
        """Return file, line and text, as compilers print them."""
        return f"{self.module.file}:{self.line}: {self.text}"


def type_defined_twice(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each definition of a class name, or of a public name for a type, that more than one place defines."""
    places: dict[str, list[tuple[Module, int]]] = defaultdict(list)
    for module in modules:
        for name, line in (*((node.name, node.lineno) for node in module.classes()), *module.type_aliases()):
            places[name].append((module, line))
    for name, found in places.items():
        if len(found) > 1:
            for module, line in found:
                yield Finding(module, line, name, f"type {name} is defined {len(found)} times")


def refused_opening(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each docstring that opens with one of ``REFUSED_OPENINGS``."""
    for module in modules:
        for line, text in module.docstrings():
            opening = text.split()[0].strip(".,:;")
            if opening.lower() in REFUSED_OPENINGS:
                yield Finding(
                    module, line, module.name, f'docstring opens with "{opening}": use a verb or a noun phrase'
                )


def large_constructor(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each ``__init__`` with more than ``MAX_COLLABORATORS`` parameters, ``self`` not counted."""
    for module in modules:
        for owner in module.classes():
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
                    if count > MAX_COLLABORATORS:
                        text = f"{owner.name}.__init__ takes {count} parameters, more than {MAX_COLLABORATORS}"
                        yield Finding(module, node.lineno, owner.name, text)


def small_file(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each file of less than ``SMALL_FILE_LINES`` that one single module imports.

    A file that the ``__init__`` of its room exports is a value that both sides of a boundary speak.
    """
    importers = _importers(modules)
    packages = {module.name for module in modules if module.is_package}
    for module in modules:
        users = importers[module.name]
        if module.line_count < SMALL_FILE_LINES and len(users) == 1 and not packages & {module.name, users[0]}:
            text = f"{module.line_count} lines with one importer, {users[0]}: join it"
            yield Finding(module, 1, module.name, text)


def unused_export(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each name that a room's ``__init__`` exports and no other room imports."""
    used = {
        (room, name)
        for module in modules
        for room, name, _ in module.imported_names()
        if not f"{module.name}.".startswith(f"{room}.")
    }
    for module in modules:
        if module.is_package:
            for name, line in _exports(module):
                if (module.name, name) not in used:
                    yield Finding(
                        module, line, f"{module.name}.{name}", f"{name} is exported, and no other room uses it"
                    )


def import_past_the_door(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each import of a module inside another room: rooms are imported by their ``__init__`` only."""
    rooms = {module.name for module in modules if module.is_package and module.name.count(".") == 1}
    known, exported = _names(modules)
    for module in modules:
        for target, line in sorted(module.imported_modules(known, exported).items()):
            room = ".".join(target.split(".")[:2])
            if room in rooms and target != room and not f"{module.name}.".startswith(f"{room}."):
                yield Finding(module, line, f"{module.name} -> {target}", f"imports {target}, a module inside {room}")


def whole_configuration(modules: Sequence[Module]) -> Iterator[Finding]:
    """Yield each module that names ``TierdConfig``, or reads the configuration of a deployment or of live settings.

    Other modules take the section of the settings that concerns them.
    """
    for module in modules:
        places = [line for line, name in module.named() if name == "TierdConfig"]
        places += [line for line, owner in module.owners_of("config") if owner in ("deployment", "settings")]
        if places:
            yield Finding(module, min(places), module.name, "reads the whole configuration: take a section of it")


RULES = (
    type_defined_twice,
    refused_opening,
    large_constructor,
    small_file,
    unused_export,
    import_past_the_door,
    whole_configuration,
)


def broken_rules(
    modules: Sequence[Module], exceptions: Mapping[str, Mapping[str, str]]
) -> tuple[list[Finding], list[str]]:
    """Return the findings that no exception allows, and the exceptions that allow nothing any more.

    Args:
        modules: the package.
        exceptions: for the name of a rule, subjects and the reason why each is allowed. A subject that ends in ``.*``
            stands for every subject below it.
    """
    findings, unneeded = [], []
    for rule in RULES:
        allowed = exceptions.get(rule.__name__, {})
        found = list(rule(modules))
        findings += [finding for finding in found if not _allowing(allowed, finding.subject)]
        needed = {exception for finding in found for exception in _allowing(allowed, finding.subject)}
        unneeded += [f"{rule.__name__}: {subject}" for subject in allowed if subject not in needed]
    return findings, unneeded


def _allowing(exceptions: Iterable[str], subject: str) -> list[str]:
    """Return those of ``exceptions`` that stand for ``subject``."""
    return [
        exception
        for exception in exceptions
        if exception == subject or (exception.endswith(".*") and f"{subject}.".startswith(exception[:-1]))
    ]


def _importers(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Return for each module the names of the modules that import it."""
    known, exported = _names(modules)
    importers: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for target in module.imported_modules(known, exported).keys() - {module.name}:
            importers[target].append(module.name)
    return importers


def _names(modules: Sequence[Module]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the dotted names of all modules, and of all exports."""
    exported = {f"{module.name}.{name}" for module in modules for name, _ in _exports(module)}
    return frozenset(module.name for module in modules), frozenset(exported)


def _exports(module: Module) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of what ``__all__`` of the module lists, or a package imports below ``if TYPE_CHECKING:``."""
    listed = dict(_listed(module))
    yield from (listed or (dict(_imported_on_demand(module)) if module.is_package else {})).items()


def _imported_on_demand(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.syntax.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom):
                    yield from ((alias.name, alias.lineno) for alias in statement.names)


def _listed(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.syntax.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            for element in ast.walk(node.value):
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    yield element.value, element.lineno
