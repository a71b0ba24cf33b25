"""Package and roots of the tests of the Debian package, made once."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.debian.environment import locked_packages, site_packages
from tests.packaging.debian.life import CHANGED_LINE, NEW, OLD, PackageLife
from tests.packaging.debian.package import CONFIGURATION, PackageTree, pack
from tests.packaging.debian.root import DebianRoot
from tests.packaging.dist import ROOT, build, origin
from tests.services.fixtures import given_up
from tests.services.services import ServiceError


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder for some gigabytes, which ends with the test run; pytest would keep three of them."""
    folder = tmp_path_factory.mktemp("debian")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tree(room: Path) -> PackageTree:
    """Return the files of the package, with the wheel that was built from the sdist."""
    cache = Path(os.environ.get("TIERD_CACHE") or ROOT / ".cache").resolve() / "debian"
    tree = PackageTree(room / "tree", int(origin()["SOURCE_DATE_EPOCH"]))
    tree.fill(locked_packages(cache), build(room)[1])
    return tree


@pytest.fixture(scope="session")
def package(tree: PackageTree, room: Path) -> Path:
    """Return the package of this tree."""
    return pack(tree, NEW, room, compression="none")


@pytest.fixture(scope="session")
def own_tree(tree: PackageTree, room: Path) -> PackageTree:
    """Return the files of the package without those of other packages, which cost dpkg seconds and lintian minutes."""
    packages = site_packages(tree.environment)

    def foreign(folder: str, names: list[str]) -> list[str]:
        if Path(folder) != packages:
            return []
        return [name for name in names if not name.startswith("tierd") and not name.endswith(".dist-info")]

    own = PackageTree(room / "own", tree.written_s)
    shutil.copytree(tree.root, own.root, symlinks=True, ignore=foreign)
    return own


@pytest.fixture(scope="session")
def own_package(own_tree: PackageTree, room: Path) -> Path:
    """Return the package of ``own_tree``, compressed, since lintian expects it so."""
    return pack(own_tree, NEW, room / "own-package", compression="gzip")


@pytest.fixture(scope="session")
def old_package(own_tree: PackageTree, room: Path) -> Path:
    """Return a package of a lower version, whose configuration has one line more."""
    configuration = own_tree.root / CONFIGURATION
    text = configuration.read_text()
    configuration.write_text(text + CHANGED_LINE)
    old = pack(own_tree, OLD, room, compression="none")
    configuration.write_text(text)
    return old


@pytest.fixture(scope="session")
def debian_root(room: Path) -> DebianRoot:
    """Return a clean Debian."""
    try:
        return DebianRoot.unpacked(room / "root")
    except ServiceError as error:
        given_up(error)


@pytest.fixture(scope="session")
def life(debian_root: DebianRoot, old_package: Path, package: Path) -> PackageLife:
    """Return a Debian on which the old package was installed and upgraded to the new one."""
    return PackageLife.begun(debian_root, old_package, package)
