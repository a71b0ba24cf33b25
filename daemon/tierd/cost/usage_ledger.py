"""Usage: requests, bytes and stored bytes per topic, hour by hour, and the ledger that keeps them (``tierd cost``).

One file per month below the state directory, ``usage/2026-11.jsonl``, an object a line::

    {"hour_ms":1763715600000,"topic":"orders","operation":"put","requests":18,"bytes":52428800}
    {"hour_ms":1763715600000,"topic":"orders","operation":"stored","requests":0,"bytes":910163968}

Lines only add up, so an hour may have several of one topic and operation; of ``stored``, a sample of the bytes
in the tier, the last one counts. Lines that were not written when a host dies are lost: they are accounting, not data.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from tierd.cost.billed_requests import Billed, RequestClass, billed_requests
from tierd.files import make_private_directory, open_regular
from tierd.json_parsing import parse_json

log = structlog.get_logger()

HOUR_MS = 3_600_000
STORED = "stored"
OTHER_TOPIC = ""
"""Topic of listings, checks and objects that belong to no topic."""
_FILES_KEPT = 14  # months
_MAX_LINE_CHARACTERS = 1 << 16  # a longer line is not ours, and is read in pieces
_MONTH = "%Y-%m"


@dataclass(frozen=True, slots=True)
class UsageLine:
    """Usage of one topic in one hour by one operation.

    Attributes:
        operation: a request class, or ``stored``.
        size_bytes: moved; for ``stored`` the bytes of the topic in the tier.
    """

    hour_ms: int
    topic: str
    operation: str
    requests: int
    size_bytes: int


class _Key(NamedTuple):
    hour_ms: int
    topic: str
    operation: str


class Usage:
    """Counters in memory, until ``take`` removes their lines. Calls do no I/O."""

    def __init__(self, *, part_size_bytes: int | None) -> None:
        self._part_size_bytes = part_size_bytes
        self._counts: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])

    def add_call(self, now_ms: int, topic: str, operation: str, size_bytes: int) -> list[tuple[Billed, int]]:
        """Count one attempt at a call and return what is billed for it: requests, and the bytes they moved.

        ``operation`` is as ``ObjectStoreCall`` has it.
        """
        billed = billed_requests(operation, size_bytes, part_size_bytes=self._part_size_bytes)
        moved = [(item, 0 if number else size_bytes) for number, item in enumerate(billed)]
        for item, size in moved:
            count = self._counts[_Key(_hour(now_ms), topic, item.kind.value)]
            count[0] += item.requests
            count[1] += size
        return moved

    def take(self, now_ms: int, stored: Mapping[str, int]) -> list[UsageLine]:
        """Return every line since the last call, with a sample of ``stored`` for each topic, and begin anew."""
        counts, self._counts = self._counts, defaultdict(lambda: [0, 0])
        lines = [UsageLine(*key, requests, size) for key, (requests, size) in sorted(counts.items())]
        return lines + [UsageLine(_hour(now_ms), topic, STORED, 0, size) for topic, size in sorted(stored.items())]


class UsageLedger:
    """The ledger's files. Blocking: use it in a thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def append(self, lines: Iterable[UsageLine]) -> None:
        """Add lines to the file of their month, and drop files that are older than fourteen months.

        Raises:
            OSError: the disk refuses; nothing or a part of the lines was written.
        """
        by_month: dict[str, list[str]] = defaultdict(list)
        for line in lines:
            by_month[_month(line.hour_ms)].append(_encode(line))
        if not by_month:
            return
        make_private_directory(self._directory)
        for month, texts in by_month.items():
            path = self._directory / f"{month}.jsonl"
            with os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file:
                file.write("".join(texts))
                file.flush()
                os.fsync(file.fileno())
        for old in self._files()[:-_FILES_KEPT]:
            old.unlink()

    def read(self, *, from_ms: int, to_ms: int) -> Iterator[UsageLine]:
        """Yield the lines of the hours from ``from_ms`` (inclusive) to ``to_ms`` (exclusive), file by file.

        A line that cannot be understood, such as the torn last one of a host that died, is left out with a warning.

        Raises:
            OSError: the directory or a file is there and cannot be read.
        """
        first, last = _month(from_ms), _month(to_ms)
        for path in self._files():
            if not first <= path.stem <= last:
                continue
            with path.open(encoding="utf-8", errors="replace") as file:
                for number, text in enumerate(iter(partial(file.readline, _MAX_LINE_CHARACTERS), ""), 1):
                    line = _decode(text)
                    if line is None:
                        log.warning("usage_line_skipped", file=str(path), line=number)
                    elif from_ms <= line.hour_ms < to_ms:
                        yield line

    def _files(self) -> list[Path]:
        """Return the file of every month, oldest first. A glob would be empty for a directory without permission."""
        try:
            return sorted(path for path in self._directory.iterdir() if path.match("????-??.jsonl"))
        except FileNotFoundError:
            return []


def is_request(operation: str) -> RequestClass | None:
    """Return the request class of a line's operation; None for a sample."""
    return None if operation == STORED else RequestClass(operation)


def _hour(now_ms: int) -> int:
    return now_ms - now_ms % HOUR_MS


def _month(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime(_MONTH)


def _encode(line: UsageLine) -> str:
    fields = {
        "hour_ms": line.hour_ms,
        "topic": line.topic,
        "operation": line.operation,
        "requests": line.requests,
        "bytes": line.size_bytes,
    }
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _decode(text: str) -> UsageLine | None:
    try:
        fields = parse_json(text)
        if not isinstance(fields, dict):
            return None
        line = UsageLine(
            int(fields["hour_ms"]),
            str(fields["topic"]),
            str(fields["operation"]),
            int(fields["requests"]),
            int(fields["bytes"]),
        )
        is_request(line.operation)
    except (ValueError, KeyError, TypeError):
        return None
    return line
