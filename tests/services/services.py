"""Start the real servers that tests talk to: free loopback ports, a folder of their own, gone with their starter.

As a command (installs nothing, see ``install.sh``)::

    python tests/services/services.py run s3 -- pytest tests/remote   # settings in the environment, then stop
    python tests/services/services.py up s3 toxiproxy                 # print ``export NAME=value``, stop on Ctrl-C

As a module, for fixtures::

    with Services(tmp_root) as services:
        settings = services.start("s3")      # {"TIERD_TEST_S3_ENDPOINT": "http://127.0.0.1:…", …}
        services.kill("s3"); services.start("s3")      # SIGKILL, then the same data on the same port
"""

import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Self
from uuid import uuid4

ACCESS_KEY, SECRET_KEY = "tierdtest", "tierdtestsecret"
REGION = "us-east-1"
START_TIMEOUT_S = 30.0


class ServiceError(Exception):
    """A server is not installed or did not become ready; the message says which and why."""


class Services:
    """Servers by name, each with data below ``root`` (or a temporary folder) and settings as environment variables.

    Start servers from the main thread: the kernel ends them together with the thread that started them.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._own_root = root is None
        self.root = root or Path(tempfile.mkdtemp(prefix="tierd-services-"))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self._running]:
            self.stop(name)
        if self._own_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def start(self, name: str) -> dict[str, str]:
        """Start ``name`` and return its settings once it answers. Starting it again reuses its data and ports.

        Raises:
            ServiceError: it is unknown, running, not installed, or did not become ready.
        """
        starters: dict[str, Callable[[], dict[str, str]]] = {"s3": self._s3, "toxiproxy": self._toxiproxy}
        if name not in starters:
            raise ServiceError(f"unknown service {name}; known: {', '.join(starters)}")
        if name in self._running:
            raise ServiceError(f"{name} is running")
        return starters[name]()

    def stop(self, name: str) -> None:
        """Ask ``name`` to end, insist after ten seconds."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """End ``name`` the way a power cut does for it: no shutdown, data left as it is."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def freeze(self, name: str) -> None:
        """Stop ``name`` in its tracks: connections stay open and nothing answers. ``thaw`` undoes it."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let a frozen ``name`` go on."""
        self._running[name].send_signal(signal.SIGCONT)

    def new_s3_user(self) -> tuple[str, str]:
        """Make an S3 user without rights on any bucket, whose every request is 403 AccessDenied; return its keys."""
        access_key, secret_key = f"nobody-{uuid4().hex[:12]}", uuid4().hex
        admin = ["admin", "--access", ACCESS_KEY, "--secret", SECRET_KEY]
        endpoint = ["--endpoint-url", f"http://127.0.0.1:{self._ports['s3']}"]
        user = ["create-user", "--access", access_key, "--secret", secret_key, "--role", "user"]
        subprocess.run([_binary("versitygw"), *admin, *endpoint, *user], check=True, capture_output=True)
        return access_key, secret_key

    # ------------------------------------------------------------ one server each

    def _s3(self) -> dict[str, str]:
        port, data = self._port("s3"), self._folder("s3")
        for part in ("buckets", "versions", "users"):
            (data / part).mkdir(exist_ok=True)
        # Without --keep-alive every request opens a connection of its own.
        gateway = ["--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "--health", "/healthz"]
        users = ["--iam-dir", str(data / "users"), "--iam-cache-disable"]
        backend = ["posix", "--versioning-dir", str(data / "versions"), str(data / "buckets")]
        self._launch(
            "s3",
            [_binary("versitygw"), *gateway, *users, *backend],
            lambda: _http_ok(f"http://127.0.0.1:{port}/healthz"),
            env={"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
        )
        return {
            "TIERD_TEST_S3_ENDPOINT": f"http://127.0.0.1:{port}",
            "TIERD_TEST_S3_REGION": REGION,
            "TIERD_TEST_S3_ACCESS_KEY": ACCESS_KEY,
            "TIERD_TEST_S3_SECRET_KEY": SECRET_KEY,
        }

    def _toxiproxy(self) -> dict[str, str]:
        port = self._port("toxiproxy")
        self._launch(
            "toxiproxy",
            [_binary("toxiproxy"), "-host", "127.0.0.1", "-port", str(port)],
            lambda: _http_ok(f"http://127.0.0.1:{port}/version"),
        )
        return {"TIERD_TEST_TOXIPROXY_URL": f"http://127.0.0.1:{port}"}

    # ------------------------------------------------------------ the shared part

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def _port(self, name: str) -> int:
        if name not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self._ports[name] = probe.getsockname()[1]
        return self._ports[name]

    def _launch(
        self, name: str, command: list[str], ready: Callable[[], bool], *, env: dict[str, str] | None = None
    ) -> None:
        log = self.root / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | (env or {}),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one C call, and no other thread holds a lock it needs
            )
        self._running[name] = process
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill(name)
                tail = log.read_text(errors="replace")[-2000:]
                raise ServiceError(f"{name} did not become ready (exit {process.returncode}):\n{tail}")
            time.sleep(0.02)


def _binary(name: str) -> str:
    cache = Path(os.environ.get("TIERD_CACHE", ".cache")).resolve()
    for folder in (str(cache / "bin"), os.environ.get("PATH", "")):
        if found := shutil.which(name, path=folder):
            return found
    raise ServiceError(f"{name} is not installed: run tests/services/install.sh")


def _http_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no server outlives a crashed test run


def main() -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["up", "run"])
    parser.add_argument("names", nargs="+", metavar="service")
    parser.add_argument("--dir", type=Path, help="keep data and logs here; default: a temporary folder")
    arguments = sys.argv[1:]
    command: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    args = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _exit)
    if args.dir:
        args.dir.mkdir(parents=True, exist_ok=True)
    try:
        with Services(args.dir and args.dir.resolve()) as services:
            settings: dict[str, str] = {}
            for name in args.names:
                settings |= services.start(name)
            if args.action == "run":
                return subprocess.run(command, env=os.environ | settings, check=False).returncode
            print("\n".join(f"export {name}='{value}'" for name, value in settings.items()), flush=True)
            sys.stdin.read()
            return 0
    except ServiceError as error:
        print(f"services.py: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 0


def _exit(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
