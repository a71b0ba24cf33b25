"""Exports of a room that are imported when they are first asked for (PEP 562).

A command imports the rooms that it names, and of each room only the modules that it uses. The ``__init__`` of such a
room has its imports where type checkers and import-linter read them, and nothing else to keep in step::

    if TYPE_CHECKING:
        from tierd.room.part import Part
    else:
        __getattr__ = exports_on_demand(__name__)

A room that packages of others import has an ``__all__`` as well: their type checkers do not know that its imports are
exports, as mypy does for the other rooms (``implicit_reexport`` in ``pyproject.toml``).
"""

import ast
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path


def exports_on_demand(room: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of ``room``, which imports a name listed below ``if TYPE_CHECKING:`` and keeps it."""

    @cache
    def modules() -> dict[str, str]:
        file = sys.modules[room].__file__
        assert file is not None, "a room has an __init__.py"
        return dict(_listed_imports(ast.parse(Path(file).read_bytes())))

    def import_name(name: str) -> object:
        if name == "__all__":
            return sorted(modules())
        if name not in modules():
            raise AttributeError(f"module {room!r} has no attribute {name!r}", name=name, obj=sys.modules[room])
        value: object = getattr(import_module(modules()[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    return import_name


def _listed_imports(syntax: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, module) of every ``from module import name`` below ``if TYPE_CHECKING:``."""
    for block in syntax.body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from ((alias.name, node.module) for alias in node.names)
