"""Hashes of a production install: complete, of the pinned versions, and without an index."""

import re
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.lock import EXTRAS, FOLDER, ROOT, locks, name_of, requirements_in

LOCKS = sorted(FOLDER.glob("*.txt"))
LOWEST_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}  # Debian 12 has 3.11.2


def locked(stem: str) -> dict[str, str]:
    return requirements_in((FOLDER / f"{stem}.txt").read_text())


def needed(extras: tuple[str, ...]) -> set[str]:
    """Return every package that tierd with these extras needs, by the metadata of installed packages.

    The Python is this one, or the lowest one that tierd accepts.
    """
    found: set[str] = set()
    waiting = [Requirement(f"tierd[{','.join(extras)}]" if extras else "tierd")]
    seen: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        name = name_of(requirement.name)
        if name != "tierd":
            found.add(name)
        try:
            wanted = map(Requirement, requires(requirement.name) or [])
        except PackageNotFoundError:
            continue
        for each in wanted:
            asked = [{"extra": extra} | python for extra in (*requirement.extras, "") for python in ({}, LOWEST_PYTHON)]
            if each.marker is None or any(each.marker.evaluate(environment) for environment in asked):
                waiting.append(each)
    return found


def test_locks_exist_for_build_tools_base_and_each_extra() -> None:
    assert {path.stem for path in LOCKS} == {"base", "build", *EXTRAS}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_requirement_has_a_version_and_hashes_and_no_lock_names_an_index(path: Path) -> None:
    text = path.read_text()
    for name, block in requirements_in(text).items():
        assert re.fullmatch(r"[\w.-]+==[\w.]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", block), name
    lines = [line for line in text.splitlines() if not line.startswith(("#", "    --hash="))]
    assert len(lines) == len(requirements_in(text))
    assert "://" not in text
    assert "index" not in re.sub(r"^importlib.*", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("stem", ["base", *EXTRAS])
def test_locked_versions_are_the_pinned_ones(stem: str) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    versions = {name_of(name): version for name, version in pinned.items()}
    for name, block in locked(stem).items():
        assert block.split()[0].partition("==")[2] == versions[name], f"{name}: run make locks"


@pytest.mark.parametrize("extras", [(), *((extra,) for extra in EXTRAS)], ids=lambda extras: "".join(extras) or "base")
def test_locks_have_all_packages_that_an_install_needs(extras: tuple[str, ...]) -> None:
    have = set(locked("base")).union(*(locked(extra) for extra in extras))
    assert needed(extras) - have == set(), "run make locks"


def test_lock_of_an_extra_has_only_packages_that_the_base_lacks() -> None:
    a, b = (f"{name}==1 \\\n    --hash=sha256:{name * 64}\n" for name in "ab")

    files = locks(a, [("x", a + b), ("y", a)])

    assert (requirements_in(files["base"]), requirements_in(files["x"])) == ({"a": a}, {"b": b})
    assert requirements_in(files["y"]) == {}
