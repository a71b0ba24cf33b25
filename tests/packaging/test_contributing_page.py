"""Section "Where do I change …" of docs/contributing.md: eleven tasks, and files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
SECTION = PAGE.partition("## Where do I change …\n")[2].partition("\n## ")[0]
_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|yaml|tsv))`")
_GENERATED = re.compile(r"`python -m ([a-z.]+)`")


def tasks() -> list[tuple[str, str, str]]:
    """Return the rows of the table: task, files of the code, files of the tests and pages."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", SECTION, re.MULTILINE)
    return [row for row in rows if row[0] != "task" and not row[0].startswith("---")]


def test_section_has_eleven_tasks_with_code_and_tests() -> None:
    assert len(tasks()) == 11
    for task, code, tests in tasks():
        assert _FILE.search(code), task
        assert re.search(r"`tests/", tests), task


def test_every_file_of_the_section_exists() -> None:
    named = _FILE.findall(SECTION)

    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_folder_of_the_section_exists() -> None:
    named = re.findall(r"`((?:[\w.-]+/)+)`", SECTION)

    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_every_generator_of_the_section_exists() -> None:
    modules = [name.replace(".", "/") for name in _GENERATED.findall(SECTION)]

    assert modules
    for module in modules:
        assert any((folder / f"{module}.py").is_file() for folder in (ROOT, ROOT / "daemon")), module
