"""Kafka's own dump tool over any number of files, in one start of Java."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment

_SOURCE = Path(__file__).parent / "kafka" / "DumpHarness.java"
_FILES_AT_ONCE = 500
_DEADLINE_S = 300.0
_LINE = re.compile(rb"^(?=Dumping |Log starting |baseOffset: |\| offset: |offset: |timestamp: )", re.MULTILINE)
_COMPLAINT = re.compile(rb"^(?:Mismatches in |Found |The following indexed offsets ).*", re.MULTILINE)
_RECORD = re.compile(
    r"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"(?:sequence: -?\d+ headerKeys: \[(.*?)\]|isValid: (?:true|false) crc: \d+\})(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """Record as the tool prints it.

    Attributes:
        text: key and value as text, with their labels; any run of bytes that are no text is one replacement character.
    """

    offset: int
    timestamp_type: str
    timestamp_ms: int
    key_size: int
    value_size: int
    header_names: str
    text: str


@dataclass(slots=True)
class DumpedDirectory:
    """Log files of one directory as the tool prints them, in the order of their names.

    Attributes:
        batches: the lines of the batches.
        records: the records of the batches that are no control batches.
    """

    batches: list[str] = field(default_factory=list)
    records: list[DumpedRecord] = field(default_factory=list)


def plain_text(data: bytes) -> str:
    """Return bytes as text, with one replacement character for any run of bytes that are no text."""
    return re.sub("\ufffd+", "\ufffd", data.decode("utf-8", errors="replace"))


def dump_directories(root: Path, directories: Sequence[Path], *, version: str) -> Mapping[Path, DumpedDirectory]:
    """Have the tool of a version print all segments, indexes and snapshots of directories below ``root``.

    Raises:
        AssertionError: the tool failed, or has found an index that does not fit to its log.
    """
    names = [
        str(file.relative_to(root)) for directory in directories for file in sorted(_files_of(directory.iterdir()))
    ]
    groups = [names[at : at + _FILES_AT_ONCE] for at in range(0, len(names), _FILES_AT_ONCE)]
    ended = subprocess.run(
        [str(KAFKA_SCRIPT), "tool", str(_SOURCE), _tool_of(version)],
        env=kafka_environment({"KAFKA_VERSION": version, "KAFKA_JVM_FLAGS": "-Dfile.encoding=UTF-8"}),
        cwd=root,
        input="".join(",".join(group) + "\n" for group in groups).encode(),
        capture_output=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-3000:]
    assert ended.stdout.endswith(b"Dumping ended\n"), ended.stdout[-3000:]
    complaints = _COMPLAINT.findall(ended.stdout)
    assert not complaints, complaints[:5]
    return _parsed(root, ended.stdout)


def _files_of(found: Iterable[Path]) -> Iterable[Path]:
    printed = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    return (file for file in found if file.suffix in printed and file.stat().st_size)


def _tool_of(version: str) -> str:
    return f"{'kafka.tools' if version.startswith('3.') else 'org.apache.kafka.tools'}.DumpLogSegments"


def _parsed(root: Path, output: bytes) -> dict[Path, DumpedDirectory]:
    found: dict[Path, DumpedDirectory] = {}
    file, is_control = Path(), False
    for line in _LINE.split(output):
        if line.startswith(b"Dumping "):
            file, is_control = root / line.split()[1].decode(), False
        elif file.suffix != ".log":
            continue
        elif line.startswith(b"| offset: "):
            if not is_control:
                found.setdefault(file.parent, DumpedDirectory()).records.append(_record(line))
        elif line.startswith((b"baseOffset: ", b"offset: ")):
            text = line.decode().strip()
            is_control = "isControl: true" in text
            found.setdefault(file.parent, DumpedDirectory()).batches.append(text)
    return found


def _record(line: bytes) -> DumpedRecord:
    match = _RECORD.fullmatch(plain_text(line.removesuffix(b"\n")))
    assert match is not None, line
    offset, kind, timestamp, key_size, value_size, names, text = match.groups()
    return DumpedRecord(int(offset), kind, int(timestamp), int(key_size), int(value_size), names or "", text)
