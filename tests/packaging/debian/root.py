"""Clean Debian for tests: unpacked from the tar file of ``install.sh debian``, entered by chroot as root.

Each command has mounts, processes and a network of its own, which end with it. Only a daemon shares the network of the
host, for its loopback address.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.services.services import ServiceError

DEADLINE_S: Final = 120
_ENTER: Final = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$@"'
_ENVIRONMENT: Final = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
_OWN: Final = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child")


@dataclass(frozen=True, slots=True)
class DebianRoot:
    """Root directory of a Debian of its own."""

    path: Path

    @classmethod
    def unpacked(cls, path: Path) -> "DebianRoot":
        """Unpack a root into ``path``.

        Raises:
            ServiceError: this user is not root, or the tar file is not there.
        """
        if os.geteuid() != 0:
            raise ServiceError("a Debian root needs chroot: run the tests as root")
        cache = Path(os.environ.get("TIERD_CACHE") or Path(__file__).parents[3] / ".cache")
        tar = cache / "debian" / "root.tar"
        if not tar.is_file():
            raise ServiceError("debian is not installed: tests/services/install.sh debian")
        path.mkdir()
        subprocess.run(["tar", "--extract", "--numeric-owner", "--file", tar, "--directory", path], check=True)
        return cls(path)

    def run(self, *command: str, user: str = "root", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command as ``user``, without a network; return its exit code and its output, both streams in one."""
        return subprocess.run(
            self._entered((*_OWN, "--net"), command, user),
            env=_ENVIRONMENT | variables,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
        )

    def checked(self, *command: str, user: str = "root", **variables: str) -> str:
        """Run a command that must succeed, and return what it printed."""
        ended = self.run(*command, user=user, **variables)
        assert ended.returncode == 0, f"{command}: exit code {ended.returncode}\n{ended.stdout}"
        return ended.stdout

    def start(self, *command: str, user: str, log: Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start a daemon as ``user``, with the network of the host; its output goes into ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                self._entered(_OWN, command, user),
                env=_ENVIRONMENT | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _entered(self, own: Sequence[str], command: Sequence[str], user: str) -> list[str]:
        root = str(self.path)
        return [*own, "sh", "-c", _ENTER, root, f"--userspec={user}", root, *command]

    def signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Signal the command of ``start``, not the processes that entered the root for it."""
        (command,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(command), number)
