"""The version of the installed package, and the commit that it was built from.

Its own module, since its imports cost a command more than most rooms. ``setup.py`` records the build in a wheel and in
an sdist; in a checkout the commit is that of the work tree.
"""

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tierd.json_parsing import parse_json

__version__ = version("tierd")

BUILD_FILE: Final = "build.json"
_UNKNOWN: Final = "unknown"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(-dirty)?")
_PACKAGE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Build:
    """Origin of the package.

    Attributes:
        commit: 40 hexadecimal digits; ``-dirty`` follows if the build had changes that are in no commit; ``unknown``
            where nothing says the commit.
        built: time of the build, ISO 8601 in UTC; empty for a checkout, whose files may have changed since the commit.
    """

    commit: str
    built: str

    def __str__(self) -> str:
        if self.commit == _UNKNOWN:
            return "commit unknown"
        return f"commit {self.commit}, " + (f"built {self.built}" if self.built else "a checkout")


def read_build(package: Path = _PACKAGE) -> Build:
    """Return the build of the package in a folder. Blocking.

    A package below some other repository, as in a virtual environment there, is not taken for a part of it.
    """
    try:
        recorded = parse_json((package / BUILD_FILE).read_text())
    except FileNotFoundError:
        return Build(_commit_of_checkout(package), "")
    except (OSError, ValueError):
        return Build(_UNKNOWN, "")
    match recorded:
        case {"commit": str(commit), "built": str(built)}:
            return Build(_checked(commit), built)
        case _:
            return Build(_UNKNOWN, "")


def _checked(commit: object) -> str:
    return commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else _UNKNOWN


def _commit_of_checkout(package: Path) -> str:
    root = package.parent.parent
    if package != root / "daemon" / "tierd" or not (root / "pyproject.toml").is_file():
        return _UNKNOWN
    try:
        return _checked(_head(_git_dir(root / ".git")))
    except (OSError, ValueError):
        return _UNKNOWN


def _git_dir(entry: Path) -> Path:
    """Return the directory of a work tree's own git files; in a linked work tree ``.git`` is a file that names it."""
    if entry.is_dir():
        return entry
    return entry.parent / entry.read_text().removeprefix("gitdir:").strip()


def _head(git_dir: Path) -> str:
    """Return the commit of HEAD as git stores it; no program is run, since another user may own the checkout."""
    head = (git_dir / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git_dir / "commondir"
    common = git_dir / shared.read_text().strip() if shared.exists() else git_dir
    loose = common / name
    if loose.is_file():
        return loose.read_text().strip()
    packed = (line.split() for line in (common / "packed-refs").read_text().splitlines())
    return next((words[0] for words in packed if words[1:] == [name]), _UNKNOWN)
