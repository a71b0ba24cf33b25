"""Modules of the package as parsed sources: the classes, docstrings, constructors and imports that the rules check."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    name: str  # dotted, without ".__init__"
    file: Path
    text: str

    @cached_property
    def syntax(self) -> ast.Module:
        """Return the parsed source."""
        return ast.parse(self.text, str(self.file))

    @property
    def is_package(self) -> bool:
        """Return True for an ``__init__.py``."""
        return self.file.name == "__init__.py"

    @property
    def line_count(self) -> int:
        """Return the number of lines, blank ones included."""
        return self.text.count("\n")

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield every class, nested ones too."""
        return (node for node in ast.walk(self.syntax) if isinstance(node, ast.ClassDef))

    def type_aliases(self) -> Iterator[tuple[str, int]]:
        """Yield (name, line) of every public name of a type: assigned, in mixed case, and no type variable."""
        for node in self.syntax.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from ((name, node.lineno) for name in names if name[0].isupper() and not name.isupper())

    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Yield (line, text) of the docstring of every module, class and function that has one."""
        for node in ast.walk(self.syntax):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield node.body[0].lineno, text

    def imported_names(self) -> Iterator[tuple[str, str, int]]:
        """Yield (module, name, line) of every ``from module import name``, relative imports not among them.

        ``module.name`` after ``import module`` is one too, the spelling of a name that is imported where it is used.
        """
        imports = (node for node in ast.walk(self.syntax) if isinstance(node, ast.Import))
        modules = {alias.name for node in imports for alias in node.names if alias.name.startswith("tierd.")}
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((node.module, alias.name, node.lineno) for alias in node.names)
            elif modules and isinstance(node, ast.Attribute) and (module := ast.unparse(node.value)) in modules:
                yield module, node.attr, node.lineno

    def named(self) -> Iterator[tuple[int, str]]:
        """Yield (line, name) of every name and of every attribute."""
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.Name):
                yield node.lineno, node.id
            elif isinstance(node, ast.Attribute):
                yield node.lineno, node.attr

    def owners_of(self, attribute: str) -> Iterator[tuple[int, str]]:
        """Yield (line, name) of every value whose ``attribute`` is read: ``b`` for ``a.b.attribute``."""
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.Attribute) and node.attr == attribute:
                owner = node.value
                if isinstance(owner, ast.Name | ast.Attribute):
                    yield node.lineno, owner.id if isinstance(owner, ast.Name) else owner.attr

    def imported_modules(self, known: frozenset[str], exported: frozenset[str]) -> dict[str, int]:
        """Return the modules of ``known`` that this one imports, under any spelling, each with the line of an import.

        A name that its package exports is not a module: ``exported`` has these, dotted.
        """
        found: dict[str, int] = {}
        for module, name, line in self.imported_names():
            found |= {each: line for each in (module, f"{module}.{name}") if each not in exported or each == module}
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.Import):
                found |= {alias.name: node.lineno for alias in node.names}
        return {module: line for module, line in found.items() if module in known}


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec", "TypeVarTuple")


def read_modules(folder: Path) -> list[Module]:
    """Read every module below ``folder``, whose name is that of the top package."""
    modules = []
    for file in sorted(folder.rglob("*.py")):
        parts = [folder.name, *file.relative_to(folder).with_suffix("").parts]
        modules.append(Module(".".join(part for part in parts if part != "__init__"), file, file.read_text()))
    return modules
