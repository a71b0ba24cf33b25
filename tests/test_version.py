"""The commit that ``tierd --version`` names: recorded in a build, read in a checkout, and never a guess."""

import json
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.command import run_tierd
from tierd.version import Build, __version__, read_build

ROOT = Path(__file__).parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *named, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a work tree with one commit, in the layout of this repository."""
    root = tmp_path / "checkout"
    package = root / "daemon" / "tierd"
    package.mkdir(parents=True)
    (package / "version.py").touch()
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "setup.py").write_bytes((ROOT / "setup.py").read_bytes())
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def commit_of(root: Path) -> str:
    return read_build(root / "daemon" / "tierd").commit


def test_version_names_the_commit_of_this_tree() -> None:
    printed = run_tierd("--version").stdout

    assert printed == f"tierd {__version__} ({read_build()})\n"
    assert git(ROOT, "rev-parse", "HEAD") in printed


def test_commit_of_a_checkout_is_that_of_its_branch(checkout: Path) -> None:
    build = read_build(checkout / "daemon" / "tierd")

    assert build == Build(git(checkout, "rev-parse", "HEAD"), "")
    assert str(build).endswith(", a checkout")


def test_commit_is_found_where_git_has_packed_its_references(checkout: Path) -> None:
    git(checkout, "pack-refs", "--all")

    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD")


def test_commit_of_a_detached_head_is_found(checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "--detach")

    assert commit_of(checkout) == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("packed", [False, True])
def test_commit_of_a_linked_work_tree_is_its_own(checkout: Path, tmp_path: Path, *, packed: bool) -> None:
    linked = tmp_path / "linked"
    git(checkout, "worktree", "add", "--quiet", "-b", "other", str(linked))
    git(linked, "commit", "--quiet", "--allow-empty", "--message", "second")
    if packed:
        git(checkout, "pack-refs", "--all")

    assert commit_of(linked) == git(linked, "rev-parse", "HEAD") != commit_of(checkout)


def test_package_below_another_repository_has_no_commit(checkout: Path) -> None:
    installed = checkout / ".venv" / "lib" / "tierd"
    installed.mkdir(parents=True)

    assert read_build(installed) == Build("unknown", "")
    assert str(read_build(installed)) == "commit unknown"


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref: ../../../etc/hostname", "garbage"])
def test_damaged_head_is_no_commit(checkout: Path, head: str) -> None:
    (checkout / ".git" / "HEAD").write_text(head)

    assert commit_of(checkout) == "unknown"


def test_checkout_without_git_has_no_commit(checkout: Path) -> None:
    (checkout / ".git").rename(checkout / "git")

    assert commit_of(checkout) == "unknown"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "\x00", '"text"', '{"commit": 7, "built": ""}', '{"commit": "v1", "built": "x"}'),
        f'{{"commit": "{COMMIT}"}}',
    ],
)
def test_damaged_record_of_a_build_is_no_commit(checkout: Path, text: str) -> None:
    (checkout / "daemon" / "tierd" / "build.json").write_text(text)

    assert commit_of(checkout) == "unknown"


@pytest.fixture
def record(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return the step of ``setup.py`` that records the build of ``checkout`` in a file; its answer is the record."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    for name in ("TIERD_COMMIT", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)
    names = runpy.run_path(str(checkout / "setup.py"))

    def recorded(target: Path) -> Any:  # noqa: ANN401 - JSON
        names["_record"](target)
        return json.loads(target.read_text())

    return recorded


def test_build_of_a_checkout_records_its_commit_and_time(
    record: Callable[[Path], Any], checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    head = git(checkout, "rev-parse", "HEAD")

    assert record(tmp_path / "build.json") == {"commit": head, "built": "2023-11-14T22:13:20+00:00"}
    assert read_build(tmp_path) == Build(head, "2023-11-14T22:13:20+00:00")
    assert str(read_build(tmp_path)) == f"commit {head}, built 2023-11-14T22:13:20+00:00"


def test_build_with_changes_that_are_in_no_commit_says_so(
    record: Callable[[Path], Any], checkout: Path, tmp_path: Path
) -> None:
    (checkout / "pyproject.toml").write_text("changed\n")

    recorded = record(tmp_path / "build.json")

    assert recorded["commit"] == git(checkout, "rev-parse", "HEAD") + "-dirty"
    assert read_build(tmp_path).commit == recorded["commit"]


def test_build_without_git_takes_the_commit_of_the_environment(
    record: Callable[[Path], Any], checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / ".git").rename(tmp_path / "git")
    assert record(tmp_path / "build.json")["commit"] == "unknown"

    monkeypatch.setenv("TIERD_COMMIT", COMMIT)
    assert record(tmp_path / "build.json")["commit"] == COMMIT


def test_text_that_is_no_commit_ends_the_build(
    record: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERD_COMMIT", "main")
    with pytest.raises(SystemExit, match="'main'"):
        record(tmp_path / "build.json")


def test_wheel_from_an_sdist_has_the_record_of_the_sdist(
    record: Callable[[Path], Any], checkout: Path, tmp_path: Path
) -> None:
    (checkout / ".git").rename(tmp_path / "git")
    of_sdist = {"commit": OTHER, "built": "2026-01-01T00:00:00+00:00"}
    (checkout / "daemon" / "tierd" / "build.json").write_text(json.dumps(of_sdist))

    assert record(tmp_path / "build.json") == of_sdist
