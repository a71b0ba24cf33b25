"""Virtual environment of the Debian package: made elsewhere, and free of traces of that place.

It has Debian's own interpreter by a link, no pip, and of the commands of all packages only ``tierd``.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.packaging.lock import EXTRAS, FOLDER

PYTHON: Final = Path("/usr/bin/python3").resolve()  # python3.11: the link leads to another with the next Debian
PREFIX: Final = Path("/usr/lib/tierd")
OWN_PACKAGES: Final = Path("/usr/local/lib/tierd/packages")  # of the operator: README.Debian
SHIPPED: Final = ("base", *(extra for extra in EXTRAS if extra != "spark"))
_WRITTEN_S: Final = 1767225600  # 2026-01-01: .pyc files name the times of their sources, which must not change
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def locked_packages(cache: Path) -> Path:
    """Return an environment with the packages of the locks, without tierd. Blocking, once per state of the locks.

    Args:
        cache: folder of the environments, which is made; one that is there already is taken.
    """
    locks = [FOLDER / f"{stem}.txt" for stem in SHIPPED]
    source = b"".join(file.read_bytes() for file in (*locks, Path(__file__)))
    done = cache / f"environment-{hashlib.sha256(_version().encode() + source).hexdigest()[:16]}"
    if done.is_dir():
        return done
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f"making-{os.getpid()}"
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", made], check=True)
    _install(made, "--require-hashes", "--only-binary=:all:", *(f"--requirement={lock}" for lock in locks))
    _finish(made, _WRITTEN_S)
    made.rename(done)
    return done


def add_tierd(environment: Path, wheel: Path, written_s: int) -> None:
    """Install ``wheel`` into an environment of ``locked_packages``; its files get the time ``written_s``."""
    _install(environment, "--no-index", "--no-deps", str(wheel))
    own = site_packages(environment)
    (own / "tierd-own-packages.pth").write_text(f"{OWN_PACKAGES}\n")
    for record in own.glob("tierd-*.dist-info/direct_url.json"):
        record.unlink()  # the place of the wheel
    _finish(environment, written_s)
    command = environment / "bin" / "tierd"
    command.write_text(f"#!{PREFIX}/bin/python3\nimport sys\n\nfrom tierd.cli import main\n\nsys.exit(main())\n")
    command.chmod(0o755)


def site_packages(environment: Path) -> Path:
    """Return the folder of the packages of an environment."""
    (folder,) = environment.glob("lib/python3.*/site-packages")
    return folder


def python_package() -> str:
    """Return the Debian package of the interpreter, such as ``python3.11``."""
    return f"python{_version()}"


def least_glibc(environment: Path) -> str:
    """Return the oldest glibc that all packages accept, by the tags of their wheels."""
    return ".".join(map(str, max(_glibcs(environment))))


def _glibcs(environment: Path) -> Iterator[tuple[int, int]]:
    for file in site_packages(environment).glob("*.dist-info/WHEEL"):
        found = [(int(major), int(minor)) for major, minor in re.findall(r"-manylinux_(\d+)_(\d+)_", file.read_text())]
        if found:
            yield min(found)


def _version() -> str:
    command = [str(PYTHON), "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _install(environment: Path, *arguments: str) -> None:
    command = [sys.executable, *_PIP, "--python", str(environment / "bin" / "python3")]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "install", "--quiet", "--no-compile", *arguments], check=True, env=own)


def _finish(environment: Path, written_s: int) -> None:
    """Remove traces of the place of building, set modes and times of new files, and compile them."""
    home = f"home = {PYTHON.parent}\ninclude-system-site-packages = false\nversion = {_version()}\n"
    (environment / "pyvenv.cfg").write_text(home)
    for path in environment.iterdir():
        if path.is_symlink():
            path.unlink()  # lib64
        elif path.name not in {"bin", "lib", "pyvenv.cfg"}:
            shutil.rmtree(path)
    for path in environment.glob("bin/*"):
        if not path.name.startswith("python"):
            path.unlink()
    for record in site_packages(environment).glob("*.dist-info/RECORD"):
        record.write_text("".join(_own_lines(record.read_text().splitlines(keepends=True))))
    for path in environment.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
            if path.stat().st_mtime > _WRITTEN_S:
                os.utime(path, (written_s, written_s))
    places = ["-s", str(environment), "-p", str(PREFIX)]
    options = ["-q", "-j0", *places, "--invalidation-mode=timestamp"]
    interpreter = environment / "bin" / "python3"
    subprocess.run([interpreter, "-m", "compileall", *options, environment / "lib"], check=True)


def _own_lines(record: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a RECORD without files outside of the packages, and without the place of a wheel."""
    for line in record:
        if not line.startswith("../") and "/direct_url.json," not in line:
            yield line
