"""Lines of the command line: the modules that may write to a stream."""

import ast
from pathlib import Path

import tierd.cli

CLI = Path(tierd.cli.__file__).parent
WRITERS = {CLI / "output" / name for name in ("printing.py", "display.py", "progress_line.py")}
_CALLS = {"print", "Console", "Progress"}
_METHODS = {"echo", "secho", "write", "writelines"}


def writes_to_a_stream(node: ast.AST) -> bool:
    """Tell if a call prints: by name, or by a method of a stream of ``sys`` or of ``typer``."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _CALLS
        case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _METHODS:
            return ast.unparse(value).startswith(("sys.", "typer"))
    return False


def test_modules_beside_those_that_escape_write_to_no_stream() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in sorted({*CLI.rglob("*.py")} - WRITERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and writes_to_a_stream(node)
    ]
    assert found == []
    assert all(any(map(writes_to_a_stream, ast.walk(ast.parse(path.read_text())))) for path in WRITERS)
