"""Build the sdist, and from it alone the wheel: ``python -m tests.packaging.dist [folder]``, by default ``dist``.

The build sees a copy of the files that git knows, so that nothing else gets in. Two builds of one commit are equal.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "daemon")


def git(*arguments: str) -> str:
    """Return what git prints in the work tree, without blanks around it."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def origin() -> dict[str, str]:
    """Return the environment of a build: the commit, with ``-dirty`` if files differ from it, and its time.

    A ``SOURCE_DATE_EPOCH`` of the caller stays.
    """
    changed = "-dirty" if git("status", "--porcelain", "--untracked-files=no") else ""
    time = os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct")
    return {"TIERD_COMMIT": git("rev-parse", "HEAD") + changed, "SOURCE_DATE_EPOCH": time}


def build(folder: Path) -> tuple[Path, Path]:
    """Write the sdist and the wheel into ``folder`` and return their paths, in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tierd-dist-") as made:
        source, output = Path(made, "source"), Path(made, "output")
        for name in git("ls-files", "--", *SOURCES).splitlines():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)]
        known = origin()
        ended = subprocess.run(
            command, env=os.environ | known, cwd=made, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ended.returncode:
            raise SystemExit(f"the build failed:\n{ended.stdout.decode()}")
        ((sdist,), (wheel,)) = (list(output.glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
        _write_evenly(sdist, folder / sdist.name, int(known["SOURCE_DATE_EPOCH"]))
        return folder / sdist.name, Path(shutil.copy(wheel, folder))


def _write_evenly(sdist: Path, target: Path, written_s: int) -> None:
    """Write an sdist again, in the order of its names, with one time and no owner, which setuptools does not."""
    with (
        tarfile.open(sdist) as source,
        gzip.GzipFile(target, "wb", mtime=written_s) as packed,
        tarfile.open(fileobj=packed, mode="w") as output,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            even = member.replace(mtime=written_s, uid=0, gid=0, uname="", gname="", deep=False)
            even.pax_headers = {}
            output.addfile(even, source.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    for path in build(Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist")):
        print(path)
