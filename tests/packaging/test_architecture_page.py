"""docs/architecture.md names files that exist and every room, and what it says of imports is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGE = ROOT / "daemon" / "tierd"
_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
_FOLDER = re.compile(r"`((?:\w+/)+)`")


def named_nowhere(names: list[str]) -> list[str]:
    """Return the names that no path of the package ends with, and that are no path below the root of the repository."""
    modules = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    present = {f"/{each}" for path in modules for each in (path, *(f"{parent}/" for parent in path.parents))}
    return [
        name for name in names if not (ROOT / name).exists() and not any(path.endswith(f"/{name}") for path in present)
    ]


def test_every_file_of_the_page_exists() -> None:
    named = _FILE.findall(PAGE)

    assert len(named) > 100
    assert named_nowhere(named) == []


def test_every_folder_of_the_page_exists() -> None:
    named = _FOLDER.findall(PAGE)

    assert len(named) > 50
    assert named_nowhere(named) == []


def test_page_names_every_room() -> None:
    rooms = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    modules = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py"}
    rows = PAGE.partition("\n## Rooms\n")[2].partition("\n### ")[0]

    assert {name for name in rooms | modules if f"`{name}`" not in rows} == set()


def importers(library: str) -> set[str]:
    """Return the modules that import ``library``."""
    statement = re.compile(rf"^\s*(?:import|from) {library}\b", re.MULTILINE)
    return {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if statement.search(path.read_text())}


@pytest.mark.parametrize(
    ("library", "importer"),
    [
        ("aiomqtt", "control/mqtt/mqtt_connection.py"),
        ("paho", "control/mqtt/mqtt_connection.py"),
        ("rocksdict", "restore/stores/rocks_database.py"),
        ("numba", "kernels/compiled/jit.py"),
    ],
)
def test_client_library_is_imported_by_one_module(library: str, importer: str) -> None:
    assert importers(library) == {importer}


@pytest.mark.parametrize(
    "folder", ["cleaning", "indexes", "loading", "partition", "producers", "records", "repair", "segments"]
)
def test_logs_touch_the_file_system_through_disk_alone(folder: str) -> None:
    calls = re.compile(
        r"^import (?:shutil|mmap|tempfile)|\bos\.(?!strerror)\w+|(?<![.\w])(?<!def )open\("
        r"|\.(?:read_bytes|write_bytes|read_text|write_text|iterdir|stat|touch)\(",
        re.MULTILINE,
    )
    found = {path.name: calls.findall(path.read_text()) for path in (PACKAGE / "log" / folder).glob("*.py")}

    assert {name: each for name, each in found.items() if each} == {}
