"""Exports of rooms that are imported when they are first asked for."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tierd
from tierd.on_demand import exports_on_demand

PACKAGE = Path(str(tierd.__file__)).parent


def rooms_on_demand() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("__init__.py")):
        if "exports_on_demand(__name__)" in file.read_text():
            yield ".".join(("tierd", *file.parent.relative_to(PACKAGE).parts))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield a room with one export, ``Part``, whose module counts its imports."""
    folder = tmp_path / "room_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "from tierd.on_demand import exports_on_demand\n"
        "if TYPE_CHECKING:\n"
        "    from room_of_a_test.part import Part\n"
        "else:\n"
        "    __getattr__ = exports_on_demand(__name__)\n"
    )
    (folder / "part.py").write_text("class Part: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("room_of_a_test")
    for name in [each for each in sys.modules if each.startswith("room_of_a_test")]:
        del sys.modules[name]


def test_module_of_an_export_is_imported_with_its_first_use(room: ModuleType) -> None:
    assert "room_of_a_test.part" not in sys.modules

    found = room.Part

    assert found is sys.modules["room_of_a_test.part"].Part
    assert vars(room)["Part"] is found


def test_names_of_the_exports_are_listed_without_an_import(room: ModuleType) -> None:
    assert room.__all__ == ["Part"]
    assert "room_of_a_test.part" not in sys.modules


def test_name_that_is_no_export_is_an_attribute_error_and_imports_nothing(room: ModuleType) -> None:
    with pytest.raises(AttributeError, match="'room_of_a_test' has no attribute 'part_two'"):
        _ = room.part_two
    assert not hasattr(room, "__wrapped__")
    assert "room_of_a_test.part" not in sys.modules


def test_rooms_that_every_command_imports_are_on_demand() -> None:
    assert {"tierd", "tierd.app", "tierd.config", "tierd.serve", "tierd.tiering"} <= set(rooms_on_demand())


@pytest.mark.parametrize("name", [*rooms_on_demand()])
def test_every_public_name_of_a_room_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", ()):
        assert getattr(module, public) is not None


@pytest.mark.parametrize("name", [*rooms_on_demand()])
def test_no_export_of_a_room_has_the_name_of_one_of_its_modules(name: str) -> None:
    # The import of such a module would put the module in the place of the export.
    folder = PACKAGE.joinpath(*name.split(".")[1:])
    modules = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}
    assert not modules & set(getattr(importlib.import_module(name), "__all__", ()))


def test_helper_is_the_getattr_of_a_module(room: ModuleType) -> None:
    assert exports_on_demand(room.__name__)("Part") is room.Part
