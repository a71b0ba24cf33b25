"""The operations page is a part of the package: the pages of an installed daemon link to its sections."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = Path("tierd", "serve", "page", "operations.md")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of ``setup.py``, which builds nothing here."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    return runpy.run_path(str(ROOT / "setup.py"))


def test_build_copies_the_operations_page_to_where_the_daemon_looks_for_it(
    steps: dict[str, Any], tmp_path: Path
) -> None:
    copy: Callable[[Path], None] = steps["_copy_operations"]
    copy(tmp_path / "operations.md")

    assert (tmp_path / "operations.md").read_bytes() == (ROOT / "docs/operations.md").read_bytes()
    assert steps["OPERATIONS_FILE"] == PAGE
    assert (ROOT / "daemon" / PAGE).with_name("operations_page.py").is_file()


def test_build_from_an_sdist_takes_the_page_that_the_sdist_has(steps: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "daemon" / PAGE).parent.mkdir(parents=True)
    (tmp_path / "daemon" / PAGE).write_text("# Operations of the sdist\n")
    copy = steps["_copy_operations"]
    copy.__globals__["ROOT"] = tmp_path
    copy(tmp_path / "operations.md")

    assert (tmp_path / "operations.md").read_text() == "# Operations of the sdist\n"


def test_image_is_built_with_the_operations_page() -> None:
    assert "COPY docs/operations.md ./docs/operations.md" in (ROOT / "Dockerfile").read_text()
    assert "!docs/operations.md" in (ROOT / ".dockerignore").read_text()
