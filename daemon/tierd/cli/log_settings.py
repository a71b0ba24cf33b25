"""``--set``: topic settings under Kafka's names, for commands that work on a log without a cluster."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import typer

from tierd.errors import LogConfigError
from tierd.log import LogConfig

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A topic setting, as in Kafka: segment.bytes=1048576; repeat for more.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Values of ``--set``: for every topic, and for single topics (``orders:segment.bytes=1048576``)."""

    common: dict[str, str]
    by_topic: dict[str, dict[str, str]]

    def of(self, topic: str) -> LogConfig:
        """Return the settings of a topic.

        Raises:
            LogConfigError: the settings contradict each other.
        """
        return LogConfig.from_kafka(self.common | self.by_topic.get(topic, {}))


def parse_settings(given: Sequence[str] | None) -> LogSettings:
    """Parse the values of ``--set``.

    Raises:
        LogConfigError: not ``NAME=VALUE``, an unknown name, or a value that is not allowed.
    """
    settings = LogSettings({}, {})
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise LogConfigError(f"--set {text!r} is not NAME=VALUE", remedy="write --set segment.bytes=1048576")
        topic, colon, own_name = name.rpartition(":")
        target = settings.by_topic.setdefault(topic, {}) if colon else settings.common
        target[_known(own_name)] = value
    for topic in ("", *settings.by_topic):
        settings.of(topic)
    return settings


def _known(name: str) -> str:
    known = sorted(field.name.replace("_", ".") for field in fields(LogConfig))
    if name in known:
        return name
    nearest = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {nearest[0]}?" if nearest else f"one of {', '.join(known)}"
    raise LogConfigError(f"--set: a log has no setting {name!r}", remedy=remedy)
