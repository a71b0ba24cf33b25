"""Wheel and sdist: complete, equal in two builds, and the sdist is all that the wheel needs."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.dist import ROOT, build, git, origin


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return sdist and wheel of this commit."""
    return build(tmp_path_factory.mktemp("dist"))


def test_wheel_has_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    names = {name for name in zipfile.ZipFile(built[1]).namelist() if ".dist-info/" not in name}

    assert names == {name.removeprefix("daemon/") for name in git("ls-files", "daemon").splitlines()} | {
        "tierd/build.json"
    }


def test_wheel_has_the_licence_and_the_command(built: tuple[Path, Path]) -> None:
    wheel = zipfile.ZipFile(built[1])
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    (commands,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]

    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert "tierd = tierd.cli:main" in wheel.read(commands).decode()


def test_command_of_the_wheel_that_was_built_from_the_sdist_names_commit_and_build(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path, built[1]], check=True)
    command = [sys.executable, "-c", "from tierd.cli import main; main()", "--version"]
    ended = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, check=True, capture_output=True)

    assert ended.stdout.decode().startswith(f"tierd 0.1.0 (commit {origin()['TIERD_COMMIT']}, built 20")


def test_sdist_has_no_file_that_git_does_not_know(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    known = set(git("ls-files").splitlines())
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg", "daemon/tierd/build.json"}

    assert names - known == made
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE"} <= names


def test_second_build_of_a_commit_is_equal(built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path)

    assert again[1].read_bytes() == built[1].read_bytes()
    assert again[0].read_bytes() == built[0].read_bytes()
