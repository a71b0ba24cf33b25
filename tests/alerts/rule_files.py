"""The rules for Prometheus that the project ships, and the same rules with short times."""

import re
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "config" / "prometheus" / "alerts.yaml"
RECORDING: Final = ROOT / "config" / "prometheus" / "recording.yaml"
UNIT_TESTS: Final = Path(__file__).parent / "promtool"

WINDOW_S: Final = 10
"""Seconds of each range and offset in shortened rules: ten scrapes of the Prometheus of the tests."""

_TIME: Final = r"\d+(?:s|m|h|d)"
_SHORTER: Final = (
    (re.compile(rf"^( +for:) {_TIME}\b", re.MULTILINE), r"\1 1s"),
    (re.compile(rf"\[{_TIME}\]"), f"[{WINDOW_S}s]"),
    (re.compile(rf"\boffset {_TIME}\b"), f"offset {WINDOW_S}s"),
    (re.compile(r"\b\d+ \* (?:60|3600|86400)\b"), "3"),
)


def shortened(rules: str) -> str:
    """Return rules that fire within seconds. Nothing but times is replaced.

    Every ``for`` is a second, every range and offset is ``WINDOW_S``, and every age, which the rules write as
    ``NUMBER * UNIT`` with the seconds of a minute, an hour or a day as unit, is three seconds.
    """
    for time, shorter in _SHORTER:
        rules = time.sub(shorter, rules)
    return rules


def alerts() -> dict[str, dict[str, Any]]:
    """Return the shipped alerts by name."""
    return {rule["alert"]: rule for group in _groups(ALERTS) for rule in group["rules"]}


def recorded() -> dict[str, str]:
    """Return the expressions of the shipped recording rules by name of their series."""
    return {rule["record"]: rule["expr"] for group in _groups(RECORDING) for rule in group["rules"]}


def metrics_in(expression: str) -> set[str]:
    """Return the names of the series of tierd, of its process and of recording rules in an expression."""
    return set(re.findall(r"\b(?:(?:instance\w*:)?tierd_[\w:]+|process_\w+)", expression))


def _groups(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = YAML(typ="safe").load(file)["groups"]
    return found
