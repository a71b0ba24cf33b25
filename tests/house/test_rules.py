from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tests.house.exceptions import EXCEPTIONS
from tests.house.rules import (
    RULES,
    Finding,
    broken_rules,
    import_past_the_door,
    large_constructor,
    refused_opening,
    small_file,
    type_defined_twice,
    unused_export,
    whole_configuration,
)
from tests.house.tree import Module, read_modules

Rule = Callable[[Sequence[Module]], Iterable[Finding]]
Package = Callable[[dict[str, str]], list[Module]]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """Return a writer of a package ``tierd`` with the given files; names end in ``.py``."""

    def write(files: dict[str, str]) -> list[Module]:
        for name, text in files.items():
            file = tmp_path / "tierd" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return read_modules(tmp_path / "tierd")

    return write


def subjects(rule: Rule, modules: Sequence[Module]) -> list[str]:
    """Return the subjects of the findings of a rule, in their order."""
    return [finding.subject for finding in rule(modules)]


def test_class_name_in_two_modules_is_found_in_both(package: Package) -> None:
    modules = package({"a.py": "class Piece: ...\nclass Other: ...\n", "b.py": "def f():\n    class Piece: ...\n"})

    found = list(type_defined_twice(modules))

    assert [(finding.module.name, finding.line, finding.subject) for finding in found] == [
        ("tierd.a", 1, "Piece"),
        ("tierd.b", 2, "Piece"),
    ]


def test_name_of_a_type_that_is_a_class_elsewhere_is_found_in_both(package: Package) -> None:
    modules = package({"a.py": "Piece = bytes | memoryview\n", "b.py": "class Piece: ...\n"})

    assert [(finding.module.name, finding.line) for finding in type_defined_twice(modules)] == [
        ("tierd.a", 1),
        ("tierd.b", 1),
    ]


@pytest.mark.parametrize("text", ["_Piece = bytes\n", "PIECE = 1\n", 'T = TypeVar("T")\n', 'RowT = TypeVar("RowT")\n'])
def test_private_names_constants_and_type_variables_may_stand_in_two_modules(package: Package, text: str) -> None:
    assert subjects(type_defined_twice, package({"a.py": text, "b.py": text})) == []


@pytest.mark.parametrize("opening", ["What is due.", "Whether it is due.", "Nobody reads it.", "Where: see there."])
def test_docstring_that_opens_with_a_question_or_an_indefinite_person_is_found(package: Package, opening: str) -> None:
    modules = package({"a.py": f'"""Good."""\n\n\ndef f():\n    """{opening}"""\n'})

    (found,) = refused_opening(modules)

    assert (found.module.name, found.line) == ("tierd.a", 5)


@pytest.mark.parametrize("opening", ["Return what is due.", "Copy task of one partition.", "Whatsoever."])
def test_docstring_that_opens_with_a_verb_or_a_noun_phrase_is_not_found(package: Package, opening: str) -> None:
    assert subjects(refused_opening, package({"a.py": f'"""{opening}"""\n'})) == []


@pytest.mark.parametrize(("count", "found"), [(8, []), (9, ["Manager"])])
def test_constructor_is_found_from_nine_parameters_on(package: Package, count: int, found: list[str]) -> None:
    parameters = ", ".join(f"p{i}" for i in range(count - 4))
    modules = package({"a.py": f"class Manager:\n    def __init__(self, a, b, /, c, *, d, {parameters}): ...\n"})

    assert subjects(large_constructor, modules) == found


@pytest.mark.parametrize(("importers", "lines", "found"), [(1, 59, ["tierd.a"]), (2, 59, []), (1, 60, []), (0, 10, [])])
def test_small_file_is_found_when_one_module_imports_it(
    package: Package, importers: int, lines: int, found: list[str]
) -> None:
    users = {f"user_{i}.py": "x = 1\n" * 60 + "from tierd.a import x\n" for i in range(importers)}

    assert subjects(small_file, package({"a.py": "x = 1\n" * lines, **users})) == found


def test_small_file_that_a_room_exports_is_not_found(package: Package) -> None:
    modules = package({"room/a.py": "x = 1\n", "room/__init__.py": "from tierd.room.a import x\n"})

    assert subjects(small_file, modules) == []


def test_export_that_is_read_as_an_attribute_of_the_room_is_not_found(package: Package) -> None:
    modules = package(
        {
            "room/__init__.py": '__all__ = [\n    "read",\n    "unread",\n]\n',
            "roommate.py": "import tierd.room\n\ndef f(): return tierd.room.read()\n",
        }
    )

    assert subjects(unused_export, modules) == ["tierd.room.unread"]


def test_export_is_found_when_only_its_own_room_uses_it(package: Package) -> None:
    modules = package(
        {
            "room/__init__.py": '__all__ = [\n    "inside",\n    "outside",\n]\n',
            "room/a.py": "from tierd.room import inside\n",
            "roommate.py": "from tierd.room import outside\n",
        }
    )

    (found,) = unused_export(modules)

    assert (found.subject, found.line) == ("tierd.room.inside", 2)


def test_import_on_demand_of_a_room_without_a_list_is_an_export(package: Package) -> None:
    modules = package(
        {
            "room/__init__.py": (
                "if TYPE_CHECKING:\n    from tierd.room.a import (\n        inside,\n        outside,\n    )\n"
            ),
            "room/a.py": "from tierd.room import inside\n",
            "roommate.py": "from tierd.room import outside\n",
        }
    )

    (found,) = unused_export(modules)

    assert (found.subject, found.line) == ("tierd.room.inside", 3)


@pytest.mark.parametrize(
    "statement",
    ["from tierd.room.a import x", "from tierd.room import a", "import tierd.room.a", "import tierd.room.a as b"],
)
def test_import_of_a_module_inside_another_room_is_found(package: Package, statement: str) -> None:
    room = {"room/__init__.py": "from tierd.room.a import x\n", "room/a.py": "x = 1\n"}

    (found,) = import_past_the_door(package({**room, "other.py": f"x = 1\n{statement}\n"}))

    assert (found.subject, found.line) == ("tierd.other -> tierd.room.a", 2)


def test_import_of_an_exported_function_named_as_its_module_is_not_found(package: Package) -> None:
    room = {"room/__init__.py": 'from tierd.room.a import a\n__all__ = ["a"]\n', "room/a.py": "def a(): ...\n"}

    assert subjects(import_past_the_door, package({**room, "other.py": "from tierd.room import a\n"})) == []


def test_import_by_the_init_of_a_room_is_not_found(package: Package) -> None:
    modules = package({"room/__init__.py": "", "room/a.py": "from tierd.room.b import x\n", "room/b.py": "x = 1\n"})

    assert subjects(import_past_the_door, modules) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from tierd.config import TierdConfig\n\ndef f(config: TierdConfig): ...",
        "def f(deployment): deployment.config.http",
        "def f(engine): return engine.deployment.config",
        "def f(settings): settings.config = None",
    ],
)
def test_module_that_reads_the_whole_configuration_is_found(package: Package, statement: str) -> None:
    assert subjects(whole_configuration, package({"a.py": f"{statement}\n"})) == ["tierd.a"]


def test_module_that_takes_a_section_of_the_configuration_is_not_found(package: Package) -> None:
    modules = package({"a.py": "def f(settings: HttpSettings, log): return settings.port, log.config\n"})

    assert subjects(whole_configuration, modules) == []


def test_exception_allows_its_subject_and_those_below_a_wildcard(package: Package) -> None:
    modules = package({"a.py": '"""What."""\n', "room/b.py": '"""What."""\n', "roommate.py": '"""What."""\n'})

    findings, unneeded = broken_rules(modules, {"refused_opening": {"tierd.a": "r", "tierd.room.*": "r"}})

    assert [finding.subject for finding in findings] == ["tierd.roommate"]
    assert unneeded == []


def test_exception_that_allows_no_finding_is_reported(package: Package) -> None:
    findings, unneeded = broken_rules(package({"a.py": ""}), {"small_file": {"tierd.b": "r"}})

    assert (findings, unneeded) == ([], ["small_file: tierd.b"])


def test_every_exception_names_a_rule_and_a_reason() -> None:
    assert set(EXCEPTIONS) <= {rule.__name__ for rule in RULES}
    assert all(reason for allowed in EXCEPTIONS.values() for reason in allowed.values())
