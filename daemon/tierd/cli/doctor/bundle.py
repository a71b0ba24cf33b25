"""The bundle of ``tierd doctor``: everything that was seen, without secrets, in one file for an issue report."""

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from tierd.cli.doctor.facts import DaemonLogFacts, DoctorFinding, Facts, HostFacts, ProbeFailure, ProcessFacts
from tierd.cli.doctor.report import answer, page_lines
from tierd.cli.output.printing import json_text
from tierd.config import read_masked
from tierd.control_characters import visible
from tierd.errors import ConfigError, RefusedError, StateDirError
from tierd.files import PRIVATE_FILE
from tierd.masking import Masking

_FOLDER: Final = "tierd-doctor"


def require_new(path: Path) -> None:
    """Require that nothing has the name of a bundle.

    Raises:
        RefusedError: a file or directory has the name.
    """
    if os.path.lexists(path):
        raise _taken(path)


def bundle_files(facts: Facts, findings: Sequence[DoctorFinding], masking: Masking) -> dict[str, bytes]:
    """Return the files of the bundle by name, every text of them masked. Pure."""
    documents: dict[str, JsonValue] = {
        "findings.json": answer(facts, findings),
        "config.json": facts.config.masked if facts.config is not None else {},
        "status.json": facts.status.to_json() if facts.status is not None else None,
        "versions.json": _versions(facts),
        "limits.json": _limits(facts),
    }
    files = {name: json_text(_masked(value, masking), indent=1) for name, value in documents.items()}
    files["page.txt"] = "\n".join(visible(masking.text(line)) for line in page_lines(facts, findings))
    if isinstance(facts.log, DaemonLogFacts):
        files["log.txt"] = "\n".join(map(masking.text, facts.log.lines))
    return {name: f"{text}\n".encode(errors="backslashreplace") for name, text in files.items()}


def known_secrets(config_file: Path, env: Mapping[str, str]) -> Masking:
    """Return the masks for every secret of the file, of the files and credentials that it names, and of ``env``.

    Blocking: reads file and secrets. Nothing is known of a file that cannot be read.
    """
    try:
        return Masking(*read_masked(config_file, env).secrets)
    except ConfigError:
        return Masking()


def write_bundle(path: Path, files: Mapping[str, bytes], *, now_ms: int) -> None:
    """Write ``files`` as a compressed archive for its owner alone, durably; never over anything, and never a half.

    Raises:
        RefusedError: a file or directory has the name.
        StateDirError: the disk is full, or this user may not write there.
    """
    content = _archive(files, now_ms=now_ms)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _unwritable(path, error) from error


def _taken(path: Path) -> RefusedError:
    return RefusedError(f"{path} exists already", remedy="name another file; a bundle replaces nothing")


def _unwritable(path: Path, error: OSError) -> StateDirError:
    return StateDirError(f"{path} cannot be written: {error.strerror}", remedy="name a file in another directory")


def _archive(files: Mapping[str, bytes], *, now_ms: int) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{_FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), PRIVATE_FILE, now_ms // 1000
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def _versions(facts: Facts) -> JsonValue:
    if isinstance(facts.host, ProbeFailure):
        return {"problem": facts.host.cause}
    host, status = facts.host, facts.status
    daemon: JsonValue = None if status is None else {"version": status.version, "commit": status.commit}
    command: JsonValue = {"version": host.version, "commit": host.commit}
    packages: JsonValue = {**host.packages}
    return {"command": command, "daemon": daemon, "python": host.python, "system": host.system, "packages": packages}


def _limits(facts: Facts) -> JsonValue:
    process = asdict(facts.process) if isinstance(facts.process, ProcessFacts) else None
    host = facts.host if isinstance(facts.host, HostFacts) else None
    files: list[JsonValue] = [
        {"path": str(each.path), "kind": each.kind, "uid": each.uid, "mode": f"{each.mode:04o}"}
        for each in (() if isinstance(facts.files, ProbeFailure) else facts.files)
    ]
    return {
        "process": process,
        "inotify_watches": host.inotify_watches if host is not None else None,
        "clock_synchronised": host.clock_synchronised if host is not None else None,
        "files": files,
    }


def _masked(value: JsonValue, masking: Masking) -> JsonValue:
    """Return ``value`` with every text in it masked, names of objects too."""
    match value:
        case str():
            return masking.text(value)
        case dict():
            return {masking.text(name): _masked(inner, masking) for name, inner in value.items()}
        case list():
            return [_masked(inner, masking) for inner in value]
        case _:
            return value
