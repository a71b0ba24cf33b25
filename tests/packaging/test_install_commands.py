"""Install commands in documentation and errors: they use the repository, since no package index has tierd."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITTEN = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "config").glob("*.yaml"),
    *(ROOT / "daemon").rglob("*.py"),
    ROOT / "README.md",
    ROOT / "Dockerfile",
]
_ASKS_AN_INDEX = re.compile(r"pip install [^\n`#]*(?<=[\s'\"])tierd(?:\[[^\n]*|['\"\s]|$)", re.MULTILINE)
_EXTRAS = re.compile(r"'\.\[([a-z,]+)\]'")


def test_no_command_installs_tierd_from_a_package_index() -> None:
    asked = {str(file.relative_to(ROOT)): _ASKS_AN_INDEX.findall(file.read_text()) for file in WRITTEN}

    assert {file: commands for file, commands in asked.items() if commands} == {}


def test_every_extra_of_an_install_command_exists() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {name for file in WRITTEN for each in _EXTRAS.findall(file.read_text()) for name in each.split(",")}

    assert named
    assert named <= extras
