"""Real servers for tests, on free loopback ports and with a folder of their own, ended with their starting process.

::

    with Services(tmp_root) as services:
        settings = services.start("s3")      # {"TIERD_TEST_S3_ENDPOINT": "http://127.0.0.1:…", …}
        services.kill("s3"); services.start("s3")      # SIGKILL, then the same data on the same port
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

from tests.services.chromium import DEBIAN_BROWSER, browser_command
from tests.services.mqtt_settings import write_settings
from tests.services.ports import free_port
from tests.services.waiting import wait_until_stopped

ACCESS_KEY, SECRET_KEY = "tierdtest", "tierdtestsecret"
REGION = "us-east-1"
USER, PASSWORD = "tierd", "tierdtest"
AZURE_ACCOUNT = "devstoreaccount1"  # Azurite's documented account and key, the same everywhere
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
NAMES: Final = (
    *("s3", "toxiproxy", "postgres", "redis", "redis-replica", "mqtt", "gcs", "azure", "prometheus", "chromium"),
)
START_TIMEOUT_S = 30.0
PROMETHEUS_SETTINGS: Final = """\
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [rules/*.yaml]
scrape_configs: [{job_name: tierd, file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]}]
"""


class ServiceError(Exception):
    """Server that is not installed or did not become ready; the message names it and the reason."""


class Services:
    """Servers by name, each with data below ``root`` (or a temporary folder) and settings as environment variables.

    Start servers from the main thread: the kernel ends them together with the thread that started them.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._own_root = root is None
        self.root = root or Path(tempfile.mkdtemp(prefix="tierd-services-"))
        self.root.chmod(0o711)  # a server that gives up root must still reach its own folder
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
            ServiceError: the server is unknown, running, not installed, or did not become ready.
        """
        if name not in NAMES:
            raise ServiceError(f"unknown service {name}; known: {', '.join(NAMES)}")
        if name in self._running:
            raise ServiceError(f"{name} is running")
        starter: Callable[[], dict[str, str]] = getattr(self, f"_{name.replace('-', '_')}")
        return starter()

    def stop(self, name: str) -> None:
        """Ask ``name`` to end; kill it after ten seconds."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)  # SIGTERM would wait for clients
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """End ``name`` as a power cut does: no shutdown, data left as it is."""
        process = self._running.pop(name)
        _signal_all(process.pid, signal.SIGKILL)
        process.wait()

    def freeze(self, name: str) -> None:
        """Stop ``name``; when this returns, connections are open without answers. ``thaw`` undoes it."""
        pid = self._running[name].pid
        _signal_all(pid, signal.SIGSTOP)
        for process in (pid, *_children(pid)):
            wait_until_stopped(process)

    def thaw(self, name: str) -> None:
        """Let a frozen ``name`` continue."""
        _signal_all(self._running[name].pid, signal.SIGCONT)

    def new_s3_user(self) -> tuple[str, str]:
        """Make an S3 user without rights on any bucket, whose every request is 403 AccessDenied; return its keys."""
        access_key, secret_key = f"nobody-{uuid4().hex[:12]}", uuid4().hex
        admin = ["admin", "--access", ACCESS_KEY, "--secret", SECRET_KEY]
        endpoint = ["--endpoint-url", f"http://127.0.0.1:{self._ports['s3']}"]
        user = ["create-user", "--access", access_key, "--secret", secret_key, "--role", "user"]
        subprocess.run([program("versitygw"), *admin, *endpoint, *user], check=True, capture_output=True)
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
            [program("versitygw"), *gateway, *users, *backend],
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
            [program("toxiproxy"), "-host", "127.0.0.1", "-port", str(port)],
            lambda: _http_ok(f"http://127.0.0.1:{port}/version"),
        )
        return {"TIERD_TEST_TOXIPROXY_URL": f"http://127.0.0.1:{port}"}

    def _postgres(self) -> dict[str, str]:
        port, data, programs = self._port("postgres"), self._folder("postgres"), _postgres_programs()
        owner = pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        if owner is not None:
            os.chown(data, owner, -1)
        if not (data / "db").exists():
            _make_postgres_cluster(programs, data, owner)
        places = ["-D", str(data / "db"), "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        asked = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        self._launch(
            "postgres",
            [str(programs / "postgres"), *places, "-c", "unix_socket_directories=", "-c", "shared_buffers=64MB"],
            lambda: subprocess.run(asked, check=False).returncode == 0,
            owner=owner,
        )
        return {"TIERD_TEST_POSTGRES_DSN": f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{port}/postgres"}

    def _redis(self) -> dict[str, str]:
        return {"TIERD_TEST_REDIS_URL": self._launch_redis("redis")}

    def _redis_replica(self) -> dict[str, str]:
        follow = ["--replicaof", "127.0.0.1", str(self._port("redis")), "--masterauth", PASSWORD]
        return {"TIERD_TEST_REDIS_REPLICA_URL": self._launch_redis("redis-replica", *follow)}

    def _launch_redis(self, name: str, *arguments: str) -> str:
        port, data = self._port(name), self._folder(name)
        place = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), "--requirepass", PASSWORD]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--databases", "1000"]
        command = [program("redis-server"), *place, *durable, "--repl-diskless-sync-delay", "0", *arguments]
        self._launch(name, command, lambda: _answers(port, f"AUTH {PASSWORD}\r\nPING\r\n".encode(), b"+OK\r\n+PONG"))
        return f"redis://:{PASSWORD}@127.0.0.1:{port}/0"

    def _mqtt(self) -> dict[str, str]:
        port, tls_port, data = self._port("mqtt"), self._port("mqtt-tls"), self._folder("mqtt")
        settings = write_settings(data, port=port, tls_port=tls_port)
        self._launch("mqtt", [program("mosquitto"), "-c", str(settings)], lambda: _answers(port))
        return {"TIERD_TEST_MQTT_PORT": str(port), "TIERD_TEST_MQTT_TLS_PORT": str(tls_port)}

    def _gcs(self) -> dict[str, str]:
        port, data = self._port("gcs"), self._folder("gcs")
        url = f"http://127.0.0.1:{port}"
        listen = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-log-level", "error"]
        told = ["-public-host", f"127.0.0.1:{port}", "-external-url", url]
        backend = ["-backend", "filesystem", "-filesystem-root", str(data)]
        self._launch(
            "gcs",
            [program("fake-gcs-server"), *listen, *told, *backend],
            lambda: _http_ok(f"{url}/_internal/healthcheck"),
        )
        return {"TIERD_TEST_GCS_ENDPOINT": url}

    def _azure(self) -> dict[str, str]:
        port, data = self._port("azure"), self._folder("azure")
        listen = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(data)]
        quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        self._launch("azure", [program("azurite-blob"), *listen, *quiet], lambda: _answers(port))
        return {
            "TIERD_TEST_AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
            "TIERD_TEST_AZURE_ACCOUNT": AZURE_ACCOUNT,
            "TIERD_TEST_AZURE_KEY": AZURE_KEY,
        }

    def _prometheus(self) -> dict[str, str]:
        port, data = self._port("prometheus"), self._folder("prometheus")
        (data / "prometheus.yml").write_text(PROMETHEUS_SETTINGS)
        url = f"http://127.0.0.1:{port}"
        listen = ["--web.enable-lifecycle", f"--web.listen-address=127.0.0.1:{port}"]
        files = [f"--config.file={data / 'prometheus.yml'}", f"--storage.tsdb.path={data / 'series'}"]
        self._launch("prometheus", [program("prometheus"), *files, *listen], lambda: _http_ok(f"{url}/-/ready"))
        return {"TIERD_TEST_PROMETHEUS_URL": url}

    def _chromium(self) -> dict[str, str]:
        port, data = self._port("chromium"), self._folder("chromium")
        # The command of the package is a script that does not hand signals on: the browser would outlive it.
        browser = str(DEBIAN_BROWSER) if DEBIAN_BROWSER.is_file() else program("chromium")
        url = f"http://127.0.0.1:{port}"
        self._launch("chromium", browser_command(browser, data, port), lambda: _http_ok(f"{url}/json/version"))
        return {"TIERD_TEST_CHROMIUM_URL": url}

    # ------------------------------------------------------------ the shared part

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = free_port()
        return self._ports[name]

    def _launch(
        self,
        name: str,
        command: list[str],
        ready: Callable[[], bool],
        *,
        env: dict[str, str] | None = None,
        owner: int | None = None,
    ) -> None:
        log = self.root / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | (env or {}),
                user=owner,
                extra_groups=None if owner is None else [],
                cwd=self.root / name if owner is not None else None,
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


def program(name: str) -> str:
    """Return the path of an installed program.

    Raises:
        ServiceError: it is not installed.
    """
    cache = Path(os.environ.get("TIERD_CACHE", ".cache")).resolve()
    for folder in (
        str(cache / "bin"),
        str(cache / "azurite/node_modules/.bin"),
        os.environ.get("PATH", ""),
        "/usr/sbin",
    ):
        if found := shutil.which(name, path=folder):
            return found
    raise ServiceError(f"{name} is not installed: run tests/services/install.sh")


def _signal_all(pid: int, number: signal.Signals) -> None:
    """Signal a server and the processes it made; the server first where that stops it from making more."""
    os.kill(pid, signal.SIGSTOP if number == signal.SIGKILL else number)
    for child in _children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
    os.kill(pid, number)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _postgres_programs() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda found: int(found.parts[-3]))
    return versions[-1].parent if versions else Path(program("initdb")).parent


def _make_postgres_cluster(programs: Path, data: Path, owner: int | None) -> None:
    secret = data / "password"
    secret.write_text(PASSWORD)
    if owner is not None:
        os.chown(secret, owner, -1)
    login = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"]
    subprocess.run(
        [programs / "initdb", "-D", data / "db", *login, "-E", "UTF8", "--locale=C", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        user=owner,
        extra_groups=None if owner is None else [],
        cwd=data,
    )


def _answers(port: int, question: bytes = b"", answer: bytes = b"") -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(question)
            return connection.recv(64).startswith(answer) if answer else True
    except OSError:
        return False


def _http_ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no server outlives a crashed test run
