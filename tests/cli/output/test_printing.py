"""Lines of the command line: the modules that may write to a stream."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

import tierd.cli
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tierd.cli.failures import ExitCode

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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("cat", "orders-0"), id="bytes"),
        pytest.param(("offsets", "orders-0", "--json"), id="json"),
        pytest.param(("offsets", "orders-0"), id="table"),
        pytest.param(("metadata", "export"), id="document"),
        pytest.param(("explain", "orders-0", "99"), id="answer that is no"),
    ],
)
def test_full_disk_behind_standard_output_is_named_and_has_its_exit_code(
    tierd: Installation, arguments: tuple[str, ...], unbuffered: str
) -> None:
    command = [str(TIERD), *arguments, "--config", str(tierd.config_file)]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert ended.stderr.splitlines() == [
        "tierd: standard output cannot be written: No space left on device",
        "  next: make room where it goes, then run the command again",
    ]
    assert ended.returncode == ExitCode.UNREACHABLE
