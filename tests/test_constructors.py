"""Constructors of the project take at most eight collaborators: more means that a part is missing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import tierd

_MOST = 8
_ALLOWED = {  # files and formats of a log, and clients of stores, which still take more
    "AzureObjectStore",
    "BatchBuilder",
    "GcsObjectStore",
    "LogManager",
    "S3Connection",
    "S3ObjectStore",
    "SegmentSurvey",
    "UnifiedLog",
}


def sizes() -> Iterator[tuple[str, int]]:
    """Yield the name of each class that has a constructor, with the number of its parameters."""
    for path in sorted(Path(tierd.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    arguments = item.args
                    yield node.name, len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1


def test_constructors_take_at_most_eight_collaborators() -> None:
    assert {name: size for name, size in sizes() if size > _MOST and name not in _ALLOWED} == {}
