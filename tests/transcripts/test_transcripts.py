"""Transcripts show the decisions of their cores; and the runner refuses a malformed transcript."""

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.drivers import DRIVERS
from tests.transcripts.transcript import FOLDER, Command, TranscriptError, play, replay, transcripts
from tests.transcripts.units import parse_duration, parse_offsets, parse_size, show_duration
from tierd.errors import RefusedError


@pytest.mark.parametrize("path", transcripts(DRIVERS), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript_shows_what_the_core_decides(path: Path) -> None:
    told, decided = replay(path, DRIVERS)
    difference = difflib.unified_diff(told.splitlines(), decided.splitlines(), str(path), "decided now", lineterm="")
    assert told == decided, "\n".join(["the core decides otherwise:", *difference])


def test_every_folder_of_transcripts_has_a_driver_and_every_driver_a_transcript() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/*.txt")}
    assert folders - {"pages"} == DRIVERS.keys()  # pages have a runner of their own


class Echo:
    """Driver without a core: ``say`` repeats its words, ``mute`` says nothing, ``refuse`` raises."""

    def run(self, command: Command) -> Iterator[str]:
        match command.name:
            case "say":
                yield " ".join([*command.words(), command.option("also", "")]).strip()
            case "mute":
                return
            case "refuse":
                raise RefusedError("it is too late", remedy="come earlier")
            case _:
                raise command.unknown()


def played(text: str) -> str:
    return play(text, Echo(), name="echo.txt")


def test_new_decisions_replace_the_old_ones_and_other_lines_stay() -> None:
    text = "# comment\nsay a\nsay b also=c\n----\nold\nolder\n\n# more\nmute\n----\n"
    assert played(text) == "# comment\nsay a\nsay b also=c\n----\na\nb c\n\n# more\nmute\n----\nnothing\n"


def test_transcript_that_is_played_twice_is_the_same() -> None:
    once = played("say a\n----\n\nrefuse\n----\n")
    assert once == played(once)
    assert "refused: it is too late" in once


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("say a\n", "echo.txt: the last block lacks ----"),
        ("say a\n----\na\n\n----\n", "echo.txt:5: no command stands before ----"),
        ("\nshout a\n----\n", "echo.txt:2: shout a: no such command: shout"),
        ("mute b c=1\n----\n", "echo.txt:1: mute b c=1: mute does not take b, c="),
    ],
)
def test_transcript_that_cannot_be_played_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(TranscriptError) as raised:
        played(text)
    assert str(raised.value) == problem


def test_missing_word_and_missing_option_are_refused() -> None:
    with pytest.raises(TranscriptError, match="say lacks a word"):
        Command("say").word()
    with pytest.raises(TranscriptError, match="say lacks also="):
        Command("say a").option("also")


def test_units_are_read_and_shown() -> None:
    assert (parse_duration("2h"), parse_size("3KiB")) == (7_200_000, 3072)
    assert (parse_offsets("5-9").start, parse_offsets("5-9").end) == (5, 9)
    assert [show_duration(value) for value in (0, 1, 90_000, 86_400_000)] == ["0s", "1ms", "1m 30s", "1d"]
    with pytest.raises(ValueError, match="'7' is not a number and one of d, h, m, s, ms"):
        parse_duration("7")
