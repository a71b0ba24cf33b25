"""Names, keys, paths and errors chosen by strangers: shown on a terminal, the page and /readyz as plain text."""

import ast
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

import tierd as package
from tests.cli.conftest import copied, log_dir, tierd, warm  # noqa: F401 - fixtures
from tests.fakes.log_capture import captured_log
from tests.scenarios.command import CommandResult, run_tierd
from tests.scenarios.installation import Installation
from tierd.cli.failures import print_failure
from tierd.cli.output.display import print_group, print_table
from tierd.cli.output.layout import plain_table
from tierd.cli.output.printing import print_error, print_json, print_line
from tierd.cli.output.record_lines import as_text_line
from tierd.control_characters import visible
from tierd.errors import TierError
from tierd.log import Record

ROOT = Path(package.__file__).parent
PRINTERS = {"cli/output/printing.py", "cli/output/display.py", "cli/output/progress_line.py"}
ATTACK = "\x1b]0;owned\x07\x1b[2J[bold]\x9b31m\u202egol[/nothing]\r\nfake line\x7f"
ODD_KEY = "\x1b[31m[bold]\u202egol.exe"
SHOWN_KEY = r"\x1b[31m[bold]\u202egol.exe"


def controls(text: str) -> set[str]:
    return {character for character in text if not character.isprintable() and character != "\n"}


def printed_by_python(path: Path) -> list[str]:
    """Return the places of a module that write to a terminal by themselves."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="typer" | "click"), attr="echo" | "secho" | "prompt"):
                found.append(ast.unparse(node))
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"),
                attr="write" | "writelines" | "buffer",
            ):
                found.append(ast.unparse(node))
            case ast.Import(names=names) if any(each.name.partition(".")[0] == "rich" for each in names):
                found.append(ast.unparse(node))
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "rich":
                found.append(ast.unparse(node))
    return found


# ------------------------------------------------------------------ the functions


def test_modules_print_only_by_the_functions_that_escape() -> None:
    modules = {path.relative_to(ROOT).as_posix(): path for path in ROOT.rglob("*.py")}
    found = {name: places for name, path in modules.items() if (places := printed_by_python(path))}
    assert set(found) == PRINTERS, {name: places for name, places in found.items() if name not in PRINTERS}


@given(st.text(st.characters(exclude_categories=())))
def test_visible_text_is_printable_and_keeps_printable_text(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(text) == text or not text.isprintable()


def test_lines_failures_and_tables_show_control_characters_and_markup_as_text() -> None:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        print_line(ATTACK)
        print_error(ATTACK)
        print_failure(TierError(f"cause {ATTACK}", remedy=f"remedy {ATTACK}"))
        table = plain_table(("[bold]name",), (), "what")
        table.add_row(ATTACK, (ATTACK, "next: [/] go on"))
        print_table(table)
        print_group(table)
    for text in (out.getvalue(), err.getvalue()):
        assert not controls(text)
        assert "[bold]" in text
        assert "[/nothing]" in text
        assert not any(line.startswith("fake line") for line in text.splitlines())
    assert "[bold]name" in out.getvalue()
    assert "next: [/] go on" in out.getvalue()


def test_json_output_keeps_data_exactly_without_control_characters() -> None:
    with redirect_stdout(io.StringIO()) as out:
        print_json({"key": ATTACK, "half": "\udc80"})
    assert not controls(out.getvalue())
    assert json.loads(out.getvalue()) == {"key": ATTACK, "half": "\udc80"}


def test_record_in_text_cannot_control_the_terminal() -> None:
    record = Record(
        offset=1, timestamp_ms=0, key=ATTACK.encode(), value=b"\xff" + ATTACK.encode(), headers=(), **_rest_of_record()
    )
    line = as_text_line(record).decode()
    assert controls(line) == {"\t"}
    assert line.count("\n") == 1


def _rest_of_record() -> dict[str, Any]:
    from dataclasses import MISSING, fields  # noqa: PLC0415

    given = {"offset", "timestamp_ms", "key", "value", "headers"}
    needed = [each for each in fields(Record) if each.name not in given and each.default is MISSING]
    return {each.name: 0 for each in needed}


@pytest.mark.parametrize("form", ["console", "json"])
def test_log_shows_control_characters_of_events_values_and_tracebacks(form: str) -> None:
    with captured_log(level="info", format=form) as stream:
        structlog.get_logger().warning(f"event {ATTACK}", key=ATTACK, path=Path(ODD_KEY), many=[ATTACK])
        try:
            Path(ODD_KEY).joinpath(ODD_KEY).read_text()
        except FileNotFoundError:
            structlog.get_logger().exception("failed", **{ATTACK: 1})
    assert not controls(stream.getvalue())


# ------------------------------------------------------------------ the commands


def with_odd_object(installation: Installation) -> Installation:
    """Put an object into the tier whose key controls a terminal."""
    segment = next(installation.store_dir.rglob("*.log"))
    for suffix in ("log", "manifest"):
        segment.with_name(f"{ODD_KEY}.{suffix}").write_bytes(b"no segment")
    return installation


def assert_harmless(ended: CommandResult) -> None:
    assert not controls(ended.output)
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    "command", [("verify",), ("repair-tier", "--dry-run"), ("rebuild-metadata", "--dry-run")], ids=" ".join
)
def test_command_shows_the_key_of_a_hostile_object_with_escapes(
    copied: Installation,  # noqa: F811
    command: tuple[str, ...],
) -> None:
    ended = with_odd_object(copied).ask(*command)
    assert_harmless(ended)


def test_rebuild_names_a_hostile_object_in_text_and_exactly_in_json(copied: Installation) -> None:  # noqa: F811
    with_odd_object(copied)
    assert SHOWN_KEY in copied.ask("rebuild-metadata", "--dry-run").stdout
    report = copied.ask("rebuild-metadata", "--dry-run", "--json").json()
    assert any(ODD_KEY in problem["where"] for problem in report["problems"])


def test_check_config_online_survives_a_bucket_named_like_markup(tierd: Installation) -> None:  # noqa: F811
    s3 = {
        "bucket": "[/bold]\x1b[2J",
        "endpoint_url": "http://127.0.0.1:1",
        "region": "eu",
        "access_key_id": "a-key",
        "secret_access_key": "a-secret",
    }
    tierd.settings["remote"] = {"backend": "s3", "s3": s3}
    tierd.configure({})
    ended = tierd.ask("check-config", "--online")
    assert_harmless(ended)
    assert r"[/bold]\x1b[2J" in ended.stdout


def test_check_config_keeps_markup_in_the_name_of_its_file(tierd: Installation) -> None:  # noqa: F811
    tierd.config_file = tierd.config_file.rename(tierd.root / "[bold]tierd.yaml")
    assert "[bold]tierd.yaml: valid" in tierd.ask("check-config").stdout


def test_failure_shows_control_characters_of_an_argument(tierd: Installation) -> None:  # noqa: F811
    ended = tierd.ask("cat", "no\x1b[2J[bold]partition")
    assert ended.exit_code == 2
    assert_harmless(ended)
    assert r"no\x1b[2J[bold]partition" in ended.stderr


def test_inspect_shows_control_characters_of_a_path(tmp_path: Path, tierd: Installation) -> None:  # noqa: F811
    odd = tmp_path / f"{ODD_KEY}-0"
    odd.mkdir()
    (odd / "00000000000000000000.log").write_bytes(os.urandom(100))
    ended = tierd.warm.run("inspect", str(odd)) if tierd.warm else tierd.ask("inspect", str(odd))
    assert_harmless(ended)
    assert SHOWN_KEY in ended.output


def test_traceback_of_a_bug_shows_control_characters_and_masks_secrets() -> None:
    script = (
        "from tierd.cli.output.printing import prepare_streams\n"
        "prepare_streams()\n"
        "raise ValueError('\\x1b[2J https://user:hush@host/\\u202e' + chr(0xdc80))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert not controls(ended.stderr)
    assert "hush" not in ended.stderr
    assert r"ValueError" in ended.stderr
    assert r"\x1b[2J https://********@host/\u202e\udc80" in ended.stderr


def test_character_that_the_encoding_of_the_terminal_lacks_is_an_escape() -> None:
    script = "from tierd.cli.output.printing import *; prepare_streams(); print_line('caf\\u00e9 \\u4e2d')"
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=environment)
    assert ended.stdout == b"caf\xe9 \\u4e2d\n"


@pytest.mark.parametrize(
    "typed",
    [
        ("inspect", f"--{ATTACK}"),
        (ATTACK,),
        (f"--{ATTACK}",),
        ("log", ATTACK),
        ("log", "append", f"--{ATTACK}"),
        ("verify", f"--deep={ATTACK}"),
        ("undelete", "orders-0", "--segment", ATTACK),
        ("estimate", "--retention", ATTACK),
    ],
    ids=lambda typed: " ".join(typed).replace(ATTACK, "ATTACK"),
)
def test_usage_error_shows_hostile_arguments_with_escapes(typed: tuple[str, ...]) -> None:
    """A shell makes arguments of the names of files that a stranger has put into a directory."""
    ended = run_tierd(*typed)
    assert ended.exit_code == 2, ended.output
    assert not controls(ended.output)
