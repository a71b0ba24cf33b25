"""Records decoded by the inspection, compared one by one with the dump of Kafka's DumpLogSegments, of both versions."""

import base64
import gzip
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.golden.unpack import GoldenCase, golden_cases
from tierd.log import Decoded, inspect_path

CASES = [case for case in golden_cases("clean") if not case.partition.startswith("__cluster_metadata")]
HEAD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<type>\w+): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^\]]*)\](?P<rest>.*)"
)
Fields = Mapping[str, object]


def dumped(path: Path) -> dict[str, list[re.Match[str]]]:
    """Return the heads of the record lines by file. Text behind a line break in a value is on a line of its own."""
    files: dict[str, list[re.Match[str]]] = {}
    name = ""
    for line in gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace").split("\n"):
        if line.startswith("Dumping "):
            name = line.split("/")[-1]
        elif match := HEAD.match(line):
            files.setdefault(name, []).append(match)
    return files


def decoded(path: Path) -> Iterator[tuple[Fields, Fields]]:
    """Yield (batch, record) in order."""
    batch: Fields = {}
    for finding in inspect_path(path, records=True):
        if isinstance(finding, Decoded) and finding.kind == "batch":
            batch = finding.fields
        elif isinstance(finding, Decoded) and finding.kind == "record":
            yield batch, finding.fields


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_decoded_record_equals_the_dump_of_kafka(golden: Path, case: GoldenCase) -> None:
    files = dumped(golden / case.oracle / "dump.txt.gz")
    logs = sorted((golden / case.logdirs[0] / case.partition).glob("*.log"))
    assert sum(map(len, files.values())) == sum(1 for log in logs for _ in decoded(log))
    for log in logs:
        for (batch, record), line in zip(decoded(log), files.get(log.name, []), strict=True):
            assert head_of(batch, record) == line.groupdict() | {"rest": None}, log
            assert_content(record, line["rest"])


def head_of(batch: Fields, record: Fields) -> dict[str, str | None]:
    offset, first, sequence = record["offset"], batch["baseOffset"], batch["baseSequence"]
    assert isinstance(offset, int)
    assert isinstance(first, int)
    assert isinstance(sequence, int)
    headers = record["headers"]
    assert isinstance(headers, list)
    return {
        "offset": str(offset),
        "type": str(batch["timestampType"]),
        "timestamp": str(record["timestamp"]),
        "key_size": str(size_of(record["key"])),
        "value_size": str(size_of(record["value"])),
        "sequence": str(-1 if sequence < 0 else (sequence + offset - first) & 0x7FFFFFFF),
        "headers": ",".join(name for name, _ in headers),
        "rest": None,
    }


def assert_content(record: Fields, rest: str) -> None:
    """Compare texts that both sides can print: Java and Python replace broken UTF-8 differently."""
    key, value = text_of(record["key"]), text_of(record["value"])
    if key is not None and value is not None and not record.get("isControl"):
        assert rest == f" key: {key} payload: {value}"


def size_of(text: object) -> int:
    return -1 if text is None else len(base64.b64decode(str(text)))


def text_of(text: object) -> str | None:
    """Return the text, or None if it cannot be compared."""
    try:
        decoded_text = None if text is None else base64.b64decode(str(text)).decode()
    except UnicodeDecodeError:
        return None
    return None if decoded_text is None or "\n" in decoded_text else decoded_text
