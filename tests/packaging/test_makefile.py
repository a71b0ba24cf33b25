"""``make quick`` runs rooms that exist, and none that needs a server or Spark."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def paths() -> list[Path]:
    """Return the paths that ``make quick`` passes to pytest."""
    planned = subprocess.run(["make", "-n", "quick"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    line = next(line for line in reversed(planned.stdout.splitlines()) if "pytest" in line)
    assert '-m "not service"' in line
    return [ROOT / name for name in re.findall(r"\btests/\S+", line)]


def test_quick_names_existing_folders_and_files(paths: list[Path]) -> None:
    assert len(paths) == len(set(paths)) > 20
    assert [path for path in paths if not path.exists()] == []


def test_quick_needs_no_spark(paths: list[Path]) -> None:
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]

    assert [file for file in files if "import pyspark" in file.read_text() or "from pyspark" in file.read_text()] == []


def test_quick_runs_lint_and_tests() -> None:
    assert re.search(r"^quick: lint$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "make quick " in (ROOT / "docs" / "contributing.md").read_text()
