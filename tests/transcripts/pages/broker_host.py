"""BrokerHost: the host that the pages speak of, below one folder, with a log dir, a tier and a daemon.

Absolute paths of a command become paths below the folder, and ports become free ones; in the output they turn back.
Programs that need root or systemd are replaced: ``sudo`` runs its command as the present user, ``install`` and
``chown`` set no owner. ``tierd`` is the real one, forked from a process that has imported it.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.scenarios.endpoint_page import free_address
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.transcripts.pages.fenced import ROOT
from tests.transcripts.pages.shell import BashSession, ShellResult
from tests.transcripts.pages.warm_command import WarmCommand

STATUS: Final = "127.0.0.1:9405"
ENDPOINT: Final = "127.0.0.1:9192"
_PATHS: Final = r"(?<![\w.~$}/-])(?=/(?:etc|var/lib|opt|srv|backup|data|tmp|usr/local)(?![\w.-]))"
_OF_REPOSITORY: Final = ("config", "systemd", "requirements")
_FOLDERS: Final = (
    *("/etc/bash_completion.d", "/etc/systemd/system", "/opt/tierd/bin", "/usr/local/bin"),
    *("/backup/tierd", "/srv", "/tmp", "/var/lib/kafka"),
)
_STAND_INS: Final = {
    "sudo": '[ "$1" = -u ] && shift 2\nexec "$@"',
    "chown": 'shift\nexec ls -d "$@" > /dev/null',
    "install": """
        for argument; do
          shift
          case "$skip$argument" in -o|-g) skip=: ;; :*) skip= ;; *) set -- "$@" "$argument" ;; esac
        done
        exec /usr/bin/install "$@"
        """,
}


class BrokerHost:
    """Folder in place of ``/``; the daemon does not run yet."""

    def __init__(
        self, root: Path, warm: WarmCommand, *, settings: Settings | None = None, environment: Mapping[str, str]
    ) -> None:
        """Write the configuration to ``/etc/tierd/tierd.yaml``; ``settings`` are merged over it."""
        self.root = root
        self.log_dir = self.path("/var/lib/kafka/data")
        self.repository = self.path("/src/tierd")
        self.places = {STATUS: free_address(), ENDPOINT: free_address()}
        self._programs = self.path("/programs")
        self._prepare_folders(warm)
        self.tierd = Installation(
            self.path("/etc/tierd"),
            [self.log_dir],
            remote={"backend": "filesystem", "filesystem": {"path": str(self.path("/srv/tier"))}},
            settings={"state_dir": str(self.path("/var/lib/tierd")), "http": {"listen": self.places[STATUS]}},
        )
        self.tierd.http = self.places[STATUS]
        self.tierd.configure(settings or {})
        self._own_environment = environment
        self._daemon: Daemon | None = None
        self._session: BashSession | None = None

    def path(self, printed: str) -> Path:
        """Return the path that stands for an absolute path of a page."""
        return self.root / printed.lstrip("/")

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the shell of the page, in the repository; at the end the daemon is killed."""
        scratch = self.path("/scratch")
        scratch.mkdir()
        try:
            with BashSession(scratch, folder=self.repository, environment=self._environment()) as opened:
                self._session = opened
                yield
        finally:
            if self._daemon is not None:
                self._daemon.kill()

    def run(self, text: str) -> ShellResult:
        """Run a command of a page; its output names the paths and ports of the page."""
        assert self._session is not None, "the shell is open"
        ended = self._session.run(self.here(text))
        return ShellResult(ended.exit_code, self.there(ended.output))

    def here(self, text: str) -> str:
        """Return a text of a page with the paths and ports of this host."""
        text = re.sub(rf"{_PATHS}(?!{re.escape(str(self.root))})", str(self.root), text).replace(
            "localhost:9405", STATUS
        )
        for printed, place in self.places.items():
            text = text.replace(printed, place)
        return text

    def there(self, text: str) -> str:
        """Return a text of this host with the paths and ports of the page."""
        for printed, place in self.places.items():
            text = text.replace(place, printed)
        return text.replace(str(self.root), "")

    def serve(self, verb: str) -> str:
        """Start, stop or restart the daemon as systemd does; return what was done."""
        if verb != "start" and self._daemon is not None:
            assert self._daemon.stop() == 0, self._daemon.log_tail()
            self._daemon = None
        if verb != "stop":
            variables = (f"{name}={value}" for name, value in self._own_environment.items())
            self._daemon = self.tierd.daemon(command=("env", *variables, str(self._programs / "tierd")))
            self._daemon.start()
            self._daemon.wait_ready()
        return {"start": "the daemon is started", "stop": "the daemon is stopped"}.get(verb, "the daemon is restarted")

    def _prepare_folders(self, warm: WarmCommand) -> None:
        for folder in (*map(self.path, _FOLDERS), self.repository, self._programs):
            folder.mkdir(parents=True)
        for name in _OF_REPOSITORY:
            shutil.copytree(ROOT / name, self.repository / name)
        (self._programs / "tierd").symlink_to(warm.program)
        self.path("/opt/tierd/bin/tierd").symlink_to(warm.program)
        self.path("/.curlrc").write_text("silent\nshow-error\n")
        for name, script in _STAND_INS.items():
            (self._programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (self._programs / name).chmod(0o755)

    def _environment(self) -> dict[str, str]:
        own = {"PATH": f"{self._programs}:{os.environ['PATH']}", "TIERD_CONFIG": str(self.tierd.config_file)}
        own |= {"HOME": str(self.root), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own, **self._own_environment}
