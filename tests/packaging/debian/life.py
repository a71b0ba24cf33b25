"""Life of the package on one Debian: installed, edited, upgraded, removed, purged."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.packaging.debian.root import DebianRoot

OLD: Final = "0.0.9-1"
NEW: Final = "0.1.0-1"
CHANGED_LINE: Final = "# a line that the next version drops\n"
EDITED: Final = "# edited by the operator\n"
_STAND_IN: Final = Path(__file__).parent / "stand_in_systemctl"
_FOLDER: Final = "var/lib/stand-in-systemctl"


@dataclass(frozen=True, slots=True)
class PackageLife:
    """Root with the upgraded package, and what dpkg printed on the way.

    Attributes:
        installed, upgraded: output of dpkg.
        before_upgrade: the configuration, after the operator has edited it.
    """

    root: DebianRoot
    installed: str
    upgraded: str
    before_upgrade: str

    @classmethod
    def begun(cls, root: DebianRoot, old: Path, new: Path) -> "PackageLife":
        """Install ``old`` beside a broker, edit its configuration, let its daemon run, and install ``new``."""
        root.checked("useradd", "--system", "--create-home", "--home-dir", "/var/lib/kafka", "kafka")
        _install_systemctl(root)
        installed = root.checked("dpkg", "--install", _handed(root, old))
        configuration = root.path / "etc/tierd/tierd.yaml"
        edited = configuration.read_text() + EDITED + _settings()
        configuration.write_text(edited)
        (root.path / _FOLDER / "state").write_text("active\n")
        upgraded = root.checked("dpkg", "--force-confold", "--install", _handed(root, new))
        return cls(root, installed, upgraded, edited)

    def journal(self) -> list[str]:
        """Return what systemd was asked: ``start`` or ``stop``, with the version that lay on the disk."""
        return (self.root.path / _FOLDER / "journal").read_text().splitlines()

    def files(self) -> set[str]:
        """Return every file below the prefix that is on the disk."""
        prefix = self.root.path / "usr/lib/tierd"
        return {f"/{path.relative_to(self.root.path)}" for path in prefix.rglob("*")}


def _settings() -> str:
    """Return settings of a daemon that copies into a directory, as lines of YAML."""
    remote = {"backend": "filesystem", "filesystem": {"path": "/srv/tier"}}
    return f'remote: {json.dumps(remote)}\nhttp: {{listen: "127.0.0.1:0"}}\ncopy: {{interval: 500ms}}\n'


def _install_systemctl(root: DebianRoot) -> None:
    for folder in ("run/systemd/system", _FOLDER):
        (root.path / folder).mkdir(parents=True)
    for name, text in {"state": "inactive\n", "enabled": "enabled\n", "journal": ""}.items():
        (root.path / _FOLDER / name).write_text(text)
    shutil.copy(_STAND_IN, root.path / "usr/bin/systemctl")
    (root.path / "usr/bin/systemctl").chmod(0o755)


def _handed(root: DebianRoot, package: Path) -> str:
    """Link the package into the root, and return its path there."""
    place = root.path / "srv" / package.name
    if not place.exists():
        place.hardlink_to(package)
    return f"/srv/{package.name}"
