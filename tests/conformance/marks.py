"""Tests by the numbered line of a specification that they cover: read from the source, so that no test has to run."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

Covered = dict[str, list[str]]


_PLACES = (ROOT / "tests", ROOT / "daemon" / "tierd" / "testing")


def covered_lines(places: Sequence[Path] = _PLACES) -> Covered:
    """Return each marked line (``log-format DIR-01``) with its tests (``tests/log/test_x.py::test_y``)."""
    covered: Covered = defaultdict(list)
    for path in sorted(path for place in places for path in place.rglob("*.py")):
        for line, test in _marks(ast.parse(path.read_text()), path.relative_to(ROOT).as_posix()):
            if test not in covered[line]:
                covered[line].append(test)
    return dict(covered)


def _marks(tree: ast.Module, where: str) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _marks_of(node, f"{where}::{node.name}")
        else:  # pytestmark = ...
            yield from ((line, where) for line in _lines(node))


def _marks_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        yield from ((line, name) for line in _lines(decorator))
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _marks_of(child, f"{name}::{child.name}")


def _lines(node: ast.AST) -> Iterator[str]:
    """Yield the arguments of every ``pytest.mark.spec(...)`` or ``conformance.spec(...)`` below ``node``."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "spec":
            yield from (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
