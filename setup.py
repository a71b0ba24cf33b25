"""Steps of a build that pyproject.toml cannot say: the record for ``tierd --version``, and the operations page.

The commit is that of ``TIERD_COMMIT``, else that of the work tree, else the one that an sdist recorded, else "unknown".
The time follows ``SOURCE_DATE_EPOCH``, so that two builds of one commit are equal. The pages of the daemon link to
sections of the operations page, which is therefore a part of the package.
"""

import json
import os
import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent.resolve()
BUILD_FILE = Path("tierd", "build.json")
OPERATIONS_FILE = Path("tierd", "serve", "page", "operations.md")


class RecordedBuild(build_py):
    """Copies the package, and records its build beside it."""

    def run(self) -> None:
        """Build; an editable install is the work tree itself, which says its commit."""
        super().run()
        if not self.editable_mode:
            _record(Path(self.build_lib) / BUILD_FILE)
            _copy_operations(Path(self.build_lib) / OPERATIONS_FILE)


class RecordedSource(sdist):
    """Makes the tree of an sdist, and records the commit, which the tree cannot say."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Write the tree."""
        super().make_release_tree(base_dir, files)
        _record(Path(base_dir, "daemon") / BUILD_FILE)
        _copy_operations(Path(base_dir, "daemon") / OPERATIONS_FILE)


def _record(target: Path) -> None:
    """Write the record; that of an sdist, which is built into a wheel, stays as it is."""
    own = ROOT / "daemon" / BUILD_FILE
    commit = os.environ.get("TIERD_COMMIT") or _commit_of_work_tree()
    if commit is None and own.is_file():
        target.write_bytes(own.read_bytes())
        return
    if commit is not None and not re.fullmatch("[0-9a-f]{40}(-dirty)?", commit):
        raise SystemExit(f"TIERD_COMMIT is {commit!r}, no commit of 40 hexadecimal digits")
    built = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC)
    facts = {"commit": commit or "unknown", "built": built.isoformat(timespec="seconds")}
    target.write_text(json.dumps(facts) + "\n")


def _copy_operations(target: Path) -> None:
    """Copy the operations page of the work tree, or the one that an sdist has; without both, the daemon says so."""
    for page in (ROOT / "docs" / "operations.md", ROOT / "daemon" / OPERATIONS_FILE):
        if page.is_file():
            target.write_bytes(page.read_bytes())
            return


def _commit_of_work_tree() -> str | None:
    """Return the commit, with ``-dirty`` after it if files differ from it; None where this is no work tree of git."""
    if not (ROOT / ".git").exists():
        return None
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}-dirty" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


setup(cmdclass={"build_py": RecordedBuild, "sdist": RecordedSource})
