"""Commands in the documentation: each verb exists, and so does each of its options."""

import re
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tierd.cli.main import GROUPS, VERBS, Verb, build_app

ROOT = Path(__file__).parents[2]
WRITTEN = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "config").glob("*.yaml")])
_COMMAND = re.compile(r"(?<![\w./-])tierd ((?:[a-z][a-z-]* ?)+)([^\n`]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def options(verb: Verb) -> frozenset[str]:
    command = get_command(build_app(verb.words))
    for word in verb.words:
        assert isinstance(command, TyperGroup)
        command = command.commands[word]
    named = [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
    return frozenset(named) | {"--help"}


def commands(page: Path) -> list[tuple[Verb, list[str]]]:
    """Yield verbs with their options, up to the end of the code or of a shell command."""
    found = []
    for words, rest in _COMMAND.findall(page.read_text()):
        named = words.split()
        size = 2 if named[0] in {group.name for group in GROUPS} else 1
        verb = next((verb for verb in VERBS if verb.words == named[:size]), None)
        if verb is not None:
            command = re.split(r"\s#|[|;&]", f"{' '.join(named[size:])} {rest}")[0]
            found.append((verb, _OPTION.findall(command)))
    return found


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_of_every_documented_command_exist(page: Path) -> None:
    unknown = [
        f"tierd {' '.join(verb.words)} {each}"
        for verb, given in commands(page)
        for each in given
        if each not in options(verb)
    ]

    assert unknown == []


def test_search_for_documented_commands_finds_known_ones() -> None:
    found = {verb.name for page in WRITTEN for verb, _ in commands(page)}

    assert {"verify", "check-config", "expire", "estimate", "recover"} <= found
