"""Placeholders of transcripts: one rule for each kind of text that is another one in every run.

A transcript is compared as text after these rules, so that everything else has to be equal.
"""

import re
import socket
from collections.abc import Iterable
from typing import Final

from tierd.version import __version__

_NAME_BITS: Final = r"(?=[A-Za-z0-9_-]*[A-Z])(?=[A-Za-z0-9_-]*[a-z])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"
_DATE: Final = r"\d{4}-\d\d-\d\d"
_UNIT: Final = r"(?:ms|s|m|min|h|d|seconds?|minutes?|hours?|days?)"
_RULES: Final = tuple(
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        (rf"{_DATE}[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?UTC|Z|\+00:00)?", "<time>"),
        (_DATE, "<date>"),
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b[0-9a-f]{64}\b", "<sha256>"),
        (rf"(?<![A-Za-z0-9_-]){_NAME_BITS}", "<id>"),
        (rf"(?<=\d{{20}}-){_NAME_BITS}", "<id>"),
        (rf"(?<=[a-z]-){_NAME_BITS}(?=/)", "<id>"),
        (r"\b[0-9a-f]{32}\b", "<hex>"),
        (r"\bcrc: \d+", "crc: <n>"),
        (r"\d+(?:\.\d+)? [KMGT]i?B(?=/s| free)", "<size>"),
        (rf"\b[\w-]+@(?:{re.escape(socket.gethostname())}|broker\d)(?![\w.-])", "<user>@<host>"),
        (r"(?<=caches of )[\w.-]+(?=:)", "<host>"),
        (r"\b\d{8}T\d{6}(?:\.\d+)?", "<time>"),
        (r"\d+(?= batches compared with)", "<n>"),
        (r"\d+(?= notes$)", "<n>"),
        (r"(?<=  command  )\d+(?=  )", "<s>"),
        (r"(?<=  command  succeeded  1  )\d+(?=  )", "<s>"),
        (r"\b1[789]\d{11}\b", "<ms>"),
        (r"\b(process|pid) \d+\b", r"\1 <pid>"),
        (rf"(?<![\w.<-])\d+(?:\.\d+)?(?: {_UNIT}| ?(?:ms|s))\b(?: \d+ ?{_UNIT}\b)*", "<duration>"),
    )
)
_PROGRESS: Final = re.compile(r"\d+ segments, now in |(drill|compact|erase): ")
_COLUMNS: Final = re.compile(r"(?<=\S)  +")


def masked(line: str) -> str:
    """Return a line with placeholders for what varies, and with two spaces between columns of any width."""
    line = line.replace(__version__, "<version>")
    line = _COLUMNS.sub("  ", line).rstrip()
    for pattern, placeholder in _RULES:
        line = pattern.sub(placeholder, line)
    return line


def without_progress(lines: Iterable[str]) -> list[str]:
    """Return the lines of an output without those that tell how far long work has come."""
    return [line for line in lines if not _PROGRESS.match(line)]
