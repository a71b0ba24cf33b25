"""Build the Debian package: ``python -m tests.packaging.debian [--version V] [--folder dist]``; prints its path.

With ``--bill``, only the SBOM and the licence list of the package are written.
"""

import argparse
import os
import shutil
import tempfile
import tomllib
from pathlib import Path

from tests.packaging.bill import LICENCES, SBOM
from tests.packaging.debian.environment import locked_packages
from tests.packaging.debian.package import PackageTree, default_version, pack
from tests.packaging.dist import ROOT, build, origin


def main() -> None:
    """Build the wheel and the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parser = argparse.ArgumentParser(
        prog="python -m tests.packaging.debian", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--version", default=default_version(project), help="version of the package (%(default)s)")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="folder of the package (%(default)s)")
    parser.add_argument("--bill", action="store_true", help="write the SBOM and the licence list, and no package")
    given = parser.parse_args()
    cache = Path(os.environ.get("TIERD_CACHE") or ROOT / ".cache").resolve() / "debian"
    with tempfile.TemporaryDirectory(prefix="tierd-deb-") as made:
        os.environ |= origin()
        tree = PackageTree(Path(made, "tree"), int(os.environ["SOURCE_DATE_EPOCH"]))
        tree.fill(locked_packages(cache), build(Path(made))[1])
        if given.bill:
            given.folder.mkdir(parents=True, exist_ok=True)
            written = [Path(shutil.copy(tree.documents / name, given.folder)) for name in (SBOM, LICENCES)]
        else:
            written = [pack(tree, given.version, given.folder)]
        print(*written, sep="\n")


if __name__ == "__main__":
    main()
