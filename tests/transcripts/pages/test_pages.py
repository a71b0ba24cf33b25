"""Commands in README and docs print what the transcripts of the pages show, and every command is in one."""

import ast
import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.kafka_clients.programs import installed_program
from tests.services.kafka_fixtures import fetched_or_skip
from tests.transcripts.pages.fenced import ROOT, FencedCommand, commands_of, pages, syntax_error
from tests.transcripts.pages.of_pages import NOT_RUN, SCENES
from tests.transcripts.pages.playing import FOLDER, covers, play, transcript_of, why_not_run
from tests.transcripts.pages.scenes import OtherTest
from tests.transcripts.pages.warm_command import WarmCommand
from tierd.cli.main import GROUPS, VERBS

PROGRAMS = ("curl", "jq", "openssl")
COMMANDS = [command for page in pages() for command in commands_of(page)]
OTHER_TESTS = sorted({each.test: each for scene in SCENES.values() for each in scene.elsewhere}.items())


@pytest.fixture(scope="module")
def warm_command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCommand]:
    """Return tierd as a program that costs no import."""
    for name in PROGRAMS:
        fetched_or_skip(lambda name=name: installed_program(name), name)  # type: ignore[misc]
    with WarmCommand(tmp_path_factory.mktemp("tierd")) as command:
        yield command


@pytest.mark.service("pages")  # the programs that tests/services/install.sh installs under this name
@pytest.mark.parametrize("page", SCENES)
def test_commands_of_a_page_print_what_its_transcript_shows(
    page: str, tmp_path: Path, warm_command: WarmCommand
) -> None:
    told, played = transcript_of(page).read_text(), play(page, tmp_path / "host", warm_command)
    difference = difflib.unified_diff(told.splitlines(), played.splitlines(), "the transcript", "now", lineterm="")
    again = f"after an intended change: python -m tests.transcripts.pages --update {page}"
    assert told == played, "\n".join([again, *difference])


def test_every_page_with_commands_has_a_scene_and_a_transcript() -> None:
    assert {command.page for command in COMMANDS} == SCENES.keys()
    assert sorted(FOLDER.glob("*.txt")) == sorted(map(transcript_of, SCENES))


def test_every_command_of_the_pages_can_be_parsed() -> None:
    assert len(COMMANDS) > 250
    faults = {command.place: syntax_error(command.text) for command in COMMANDS}
    assert {place: fault for place, fault in faults.items() if fault} == {}


def test_every_verb_of_tierd_that_the_commands_name_exists() -> None:
    named = {
        (command.place, *match)
        for command in COMMANDS
        for match in re.findall(r"(?<![\w=./-])tierd ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", command.text)
        if "docker" not in command.text
    }
    groups, words = {group.name for group in GROUPS}, {tuple(verb.words) for verb in VERBS}
    known = {(first, second) for _, first, second in named if (first, second) in words or (first,) in words}
    assert len(known) > 40
    assert [each for each in named if each[1:] not in known and each[1] not in groups] == []


def test_every_file_of_the_repository_that_the_commands_name_exists() -> None:
    named = {
        (command.place, name)
        for command in COMMANDS
        for name in re.findall(r"(?<![\w/.$-])((?:config|requirements|systemd|tests)/[\w./-]+)", command.text)
    }
    assert len(named) > 5
    assert [(place, name) for place, name in named if not (ROOT / name).exists()] == []


def test_every_target_of_make_that_the_commands_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {match[1] for command in COMMANDS if (match := re.match(r"make ([a-z-]+)", command.text))}
    assert len(named) > 10
    assert named <= targets


@pytest.mark.parametrize("other", [other for _, other in OTHER_TESTS], ids=[test for test, _ in OTHER_TESTS])
def test_other_test_that_a_scene_names_exists_and_reads_the_page(other: OtherTest) -> None:
    file, _, name = other.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}
    imported = [
        ROOT / f"{node.module.replace('.', '/')}.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tests.")
    ]
    sources = "".join(each.read_text() for each in (ROOT / file, *imported) if each.is_file())
    assert [each for each in other.names if each not in sources] == []


@pytest.mark.parametrize("page", SCENES)
def test_every_part_of_a_scene_is_about_a_command_of_the_page(page: str) -> None:
    scene, commands = SCENES[page], commands_of(page)
    keys = {key for each in commands for key in (each.text, f"{each.heading}: {each.text}")}
    assert scene.before.keys() | scene.shown.keys() | scene.in_any_order <= keys
    assert [name for name in scene.values if not any(name in each.text for each in commands)] == []
    unused = [each.test for each in scene.elsewhere if not any(covers(each.taken(), command) for command in commands)]
    assert unused == []
    assert [reason for reason in scene.not_run if not any(re.match(reason, each.text) for each in commands)] == []


def test_every_reason_not_to_run_a_command_is_about_one() -> None:
    assert [reason for reason in NOT_RUN if not any(re.match(reason, each.text) for each in COMMANDS)] == []


def test_no_command_of_tierd_alone_is_left_out() -> None:
    def is_of_tierd(command: FencedCommand) -> bool:
        return re.match(r"(sudo (-u kafka )?)?(/opt/tierd/bin/)?tierd ", command.text) is not None

    assert [each.place for each in COMMANDS if is_of_tierd(each) and why_not_run(each, SCENES[each.page])] == []
