"""Probes of this host and this command: versions, limits, the clock, rights on the files of the daemon. Blocking."""

import ctypes
import os
import platform
import stat
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tierd.cli.doctor.facts import FileFacts, HostFacts
from tierd.version import __version__, read_build

_PACKAGES: Final = (
    *("aiobotocore", "aiohttp", "aiomqtt", "asyncpg", "cramjam", "cryptography", "kio", "numba", "numpy", "obstore"),
    *("pyarrow", "pydantic", "pyspark", "redis", "rocksdict", "structlog", "typer", "uvloop", "zstandard"),
)
_WATCHES: Final = Path("/proc/sys/fs/inotify/max_user_watches")
_TIMEX_BYTES: Final = 256  # struct timex has 208 bytes on 64 bits
_TIME_ERROR: Final = 5  # adjtimex(2): the clock is not synchronised
_MOST_FILES: Final = 1000


def probe_host() -> HostFacts:
    """Return versions and limits of this command and this host."""
    return HostFacts(
        version=__version__,
        commit=read_build().commit,
        uid=os.geteuid(),
        python=platform.python_version(),
        system=" ".join(os.uname()[::2]),
        packages=dict(_installed()),
        clock_synchronised=_is_clock_synchronised(),
        inotify_watches=_number_in(_WATCHES),
    )


def _installed() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _is_clock_synchronised() -> bool | None:
    """Ask the kernel, which any daemon of NTP tells; None where it does not answer, as in some containers."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def probe_files(config_file: Path, state_dir: Path | None) -> tuple[FileFacts, ...]:
    """Return owner and mode of the file, the directory and its entries, of which none is opened; no missing one."""
    paths = [config_file] if state_dir is None else [config_file, state_dir, *_entries(state_dir)]
    return tuple(facts for path in paths if (facts := _facts_of(path)) is not None)


def _entries(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return sorted(Path(entry.path) for entry, _ in zip(entries, range(_MOST_FILES), strict=False))
    except OSError:
        return []


def _facts_of(path: Path) -> FileFacts | None:
    try:
        status = path.stat()
    except OSError:
        return None
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory"}
    return FileFacts(path, kinds.get(stat.S_IFMT(status.st_mode), "other"), status.st_uid, stat.S_IMODE(status.st_mode))
