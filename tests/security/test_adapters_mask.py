"""Masked exceptions of client libraries: no module of an adapter chains or prints the original."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tierd
import tierd.errors
from tierd.metadata.kv import refusals
from tierd.remote.backends import answers

ROOT = Path(tierd.__file__).parent
ADAPTERS = sorted(
    [
        *(path for kind in ("s3", "azure", "gcs") for path in ROOT.glob(f"remote/backends/{kind}/*.py")),
        *(path for kind in ("postgres", "redis") for path in ROOT.glob(f"metadata/kv/{kind}*.py")),
    ]
)
OURS = {*vars(tierd.errors), *vars(answers), *vars(refusals), "ModuleNotFoundError"}


def handlers_of_clients_exceptions(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if {ast.unparse(each) for each in caught} - OURS:
                yield node


def uses_in_texts(handler: ast.ExceptHandler) -> Iterator[ast.AST]:
    """Places where the exception is chained, put into a text, or turned into one."""
    for node in ast.walk(handler):
        match node:
            case ast.Raise(cause=ast.Name(id=name)) | ast.FormattedValue(value=ast.Name(id=name)):
                if name == handler.name:
                    yield node
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]) if name == handler.name:
                yield node


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_adapter_puts_no_exception_of_its_client_library_into_an_error(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [
        f"{path.name}:{place.lineno}: {ast.unparse(place)}"
        for handler in handlers_of_clients_exceptions(tree)
        for place in uses_in_texts(handler)
        if isinstance(place, ast.expr | ast.stmt)
    ]
    assert not found, f"use Masking.error: {found}"
