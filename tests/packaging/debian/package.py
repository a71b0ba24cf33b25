"""Debian package of tierd. What it consists of is in ``systemd/debian``; docs/decisions/0041 has the reasons."""

import gzip
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from tests.packaging.bill import write_bill
from tests.packaging.debian.environment import PREFIX, add_tierd, least_glibc, python_package
from tests.packaging.dist import ROOT, git
from tests.packaging.lock import FOLDER, requirements_in

SOURCE: Final = ROOT / "systemd" / "debian"
MAINTAINER: Final = os.environ.get("TIERD_MAINTAINER", "tierd packagers <packagers@tierd.invalid>")
CONFIGURATION: Final = "etc/tierd/tierd.yaml"
SCRIPTS: Final = ("postinst", "prerm", "postrm")
COMPLETIONS: Final = {
    "bash": "usr/share/bash-completion/completions/tierd",
    "zsh": "usr/share/zsh/vendor-completions/_tierd",
    "fish": "usr/share/fish/vendor_completions.d/tierd.fish",
}
# What zsh loads from the file defines the completion; without this line, the first Tab would complete nothing.
_AT_FIRST_CALL: Final = {"zsh": '[ "$funcstack[1]" != _tierd ] || _tierd_completion "$@"\n'}


@dataclass(frozen=True, slots=True)
class PackageTree:
    """Files of the package below ``root``, as they will lie below ``/``."""

    root: Path
    written_s: int  # time of its files, seconds since 1970

    @property
    def environment(self) -> Path:
        """Return the virtual environment."""
        return self.root / PREFIX.relative_to("/")

    @property
    def documents(self) -> Path:
        """Return the folder of documents."""
        return self.root / "usr/share/doc/tierd"

    def fill(self, packages: Path, wheel: Path) -> None:
        """Write every file but those of ``DEBIAN``, from an environment of ``locked_packages`` and a wheel of tierd."""
        shutil.copytree(packages, self.environment, symlinks=True)
        add_tierd(self.environment, wheel, self.written_s)
        self._write_command()
        self._write_settings()
        self._write_documents()

    def _write_command(self) -> None:
        self._path("usr/bin/tierd").symlink_to("../lib/tierd/bin/tierd")
        pages = self._path("usr/share/man/man1/tierd.1").parent
        self._tierd("man-pages", str(pages))
        for page in pages.iterdir():
            _compress(page)
        for shell, name in COMPLETIONS.items():
            script = self._tierd(_TIERD_COMPLETE=f"source_{shell}").lstrip()  # zsh looks at the first line
            self._path(name).write_text(script + _AT_FIRST_CALL.get(shell, ""))

    def _write_settings(self) -> None:
        unit = (ROOT / "systemd" / "tierd.service").read_text()
        self._path("lib/systemd/system/tierd.service").write_text(unit.replace("/opt/tierd", str(PREFIX)))
        shutil.copy(SOURCE / "tierd.yaml", self._path(CONFIGURATION))
        shutil.copy(ROOT / "systemd" / "tierd-spark.conf", self._path("usr/share/tierd/tierd-spark.conf"))
        spark = requirements_in((FOLDER / "spark.txt").read_text())
        arrow = requirements_in((FOLDER / "arrow.txt").read_text())
        lock = "".join(text for name, text in spark.items() if name not in arrow)
        self._path("usr/share/tierd/spark.txt").write_text(lock)

    def _write_documents(self) -> None:
        write_bill(self.environment / "bin" / "python3", self.documents, written_s=self.written_s)
        for name in ("copyright", "README.Debian"):
            shutil.copy(SOURCE / name, self.documents / name)
        _compress(Path(shutil.copy(ROOT / "CHANGELOG.md", self.documents / "changelog")))
        shutil.copytree(ROOT / "config", self.documents / "examples")
        shutil.copy(SOURCE / "lintian-overrides", self._path("usr/share/lintian/overrides/tierd"))

    def _path(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _tierd(self, *arguments: str, **variables: str) -> str:
        """Return what tierd of the tree prints; it leaves no file behind."""
        programs = self.environment / "bin"
        command = [str(programs / "python3"), "-I", "-B", str(programs / "tierd"), *arguments]
        given = os.environ | variables
        return subprocess.run(command, check=True, capture_output=True, text=True, env=given).stdout


def default_version(project: str) -> str:
    """Return the version of a package of this commit: that of the project, below it unless the commit has its tag."""
    if f"v{project}" in git("tag", "--points-at", "HEAD").split():
        return f"{project}-1"
    time = git("log", "-1", "--format=%cd", "--date=format-local:%Y%m%d%H%M%S")
    return f"{project}~git{time}.{git('rev-parse', '--short=8', 'HEAD')}-1"


def pack(tree: PackageTree, version: str, folder: Path, *, compression: str = "xz") -> Path:
    """Write the package of a tree into ``folder`` and return its path; a file of that name is replaced.

    Args:
        tree: filled; its ``DEBIAN`` and its changelog are written anew.
        version: as Debian orders versions.
        folder: is made if it does not exist.
        compression: as ``dpkg-deb -Z`` takes it.
    """
    architecture = _output("dpkg", "--print-architecture")
    _write_changelog(tree, version)
    _normalise(tree.root)
    (tree.root / CONFIGURATION).parent.chmod(0o750)
    (tree.root / CONFIGURATION).chmod(0o640)
    _write_control(tree, {"version": version, "architecture": architecture})
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"tierd_{version}_{architecture}.deb"
    command = ["dpkg-deb", f"-Z{compression}", "--root-owner-group", "--build", str(tree.root), str(package)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | _epoch(tree))
    return package


def _write_changelog(tree: PackageTree, version: str) -> None:
    date = format_datetime(datetime.fromtimestamp(tree.written_s, UTC))
    entry = (
        f"tierd ({version}) unstable; urgency=medium\n\n  * changelog.gz has the changes.\n\n -- {MAINTAINER}  {date}\n"
    )
    file = tree.documents / "changelog.Debian"
    file.write_text(entry)
    _compress(file)


def _write_control(tree: PackageTree, values: Mapping[str, str]) -> None:
    folder = tree.root / "DEBIAN"
    shutil.rmtree(folder, ignore_errors=True)
    files = [path for path in sorted(tree.root.rglob("*")) if path.is_file() and not path.is_symlink()]
    files.remove(tree.root / CONFIGURATION)  # dpkg keeps its sum elsewhere
    folder.mkdir(mode=0o755)
    (folder / "control").write_text(
        (SOURCE / "control")
        .read_text()
        .format(
            **values,
            maintainer=MAINTAINER,
            installed_kib=sum(-(-file.stat().st_size // 1024) for file in files),
            python=python_package(),
            glibc=least_glibc(tree.environment),
        )
    )
    (folder / "conffiles").write_text(f"/{CONFIGURATION}\n")
    sums = {file.relative_to(tree.root): hashlib.md5(file.read_bytes(), usedforsecurity=False) for file in files}
    (folder / "md5sums").write_text("".join(f"{each.hexdigest()}  {name}\n" for name, each in sums.items()))
    for name in SCRIPTS:
        shutil.copy(SOURCE / name, folder / name)
        (folder / name).chmod(0o755)


def _normalise(root: Path) -> None:
    """Give every file the mode that dpkg expects, whatever the umask and the modes of the work tree."""
    for path in root.rglob("*"):
        if path.is_symlink() or "DEBIAN" in path.parts:
            continue
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)


def _epoch(tree: PackageTree) -> dict[str, str]:
    return {"SOURCE_DATE_EPOCH": str(tree.written_s)}


def _compress(file: Path) -> None:
    """Replace ``file`` by its compressed form, without name and time, so that two builds are equal."""
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    file.unlink()


def _output(*command: str, folder: Path = ROOT) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
