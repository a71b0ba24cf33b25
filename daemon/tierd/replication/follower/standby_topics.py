"""StandbyTopics: settings of the topics, as the logs of a standby follow them.

A standby's log obeys the topic's settings of its leader, with these differences:

- Settings that a log does not know, or a value that it cannot have, are left out.
- The tier is the leader's business: of a tiered topic the copy has what the leader has on local disk. The leader keeps
  records for longer than the local retention while they are not in the tier, so that only its log start deletes any.
- A topic without known settings is kept for ever, for a wrong guess would delete records.
"""

from dataclasses import fields, replace
from typing import Final, Literal

import structlog

from tierd.errors import LogConfigError
from tierd.log import LogConfig

FlushPolicy = Literal["never", "interval", "always"]
"""When a standby's records are on stable storage: as the kernel decides, at intervals, or before each answer."""

_LOG = structlog.get_logger(__name__)
_KNOWN: Final = frozenset(field.name.replace("_", ".") for field in fields(LogConfig))
_OF_THE_LEADER: Final = frozenset({"remote.log.copy.disable", "strict.recovery", "preallocate"})


class StandbyTopics:
    """Settings by topic. ``config_for`` is for the settings of the log manager, from any thread."""

    def __init__(self, topics: dict[str, dict[str, str]], *, flush: FlushPolicy, flush_interval_s: float) -> None:
        """Begin with the settings of before the restart."""
        self._settings = dict(topics)
        self._flush_ms = round(flush_interval_s * 1000) if flush == "interval" else None
        self._configs = {topic: self._read(topic, settings) for topic, settings in topics.items()}

    @property
    def settings(self) -> dict[str, dict[str, str]]:
        """Return the settings as the leaders announced them."""
        return dict(self._settings)

    def config_for(self, topic: str) -> LogConfig:
        """Return the settings of a log of ``topic``."""
        return self._configs.get(topic) or self._read(topic, {})

    def is_known(self, topic: str) -> bool:
        """Return True if a leader has announced settings of a topic."""
        return bool(self._settings.get(topic))

    def update(self, topic: str, settings: dict[str, str]) -> bool:
        """Take over settings; return True if those of the logs changed."""
        before = self.config_for(topic)
        self._settings[topic] = settings
        self._configs[topic] = self._read(topic, settings)
        return self._configs[topic] != before

    def forget(self, topic: str) -> None:
        """Forget a topic of which no log is left."""
        self._settings.pop(topic, None)
        self._configs.pop(topic, None)

    def _read(self, topic: str, settings: dict[str, str]) -> LogConfig:
        if not settings:
            return self._with_flush(LogConfig(retention_ms=-1, retention_bytes=-1))
        usable: dict[str, str] = {}
        for name, value in settings.items():
            if name not in _KNOWN or name in _OF_THE_LEADER:
                continue
            try:
                LogConfig.from_kafka({name: value})
            except LogConfigError as error:
                _LOG.warning("topic_setting_left_out", topic=topic, setting=name, error=str(error))
            else:
                usable[name] = value
        is_tiered = usable.pop("remote.storage.enable", "false").lower() == "true"
        config = LogConfig.from_kafka(usable)
        return self._with_flush(replace(config, retention_ms=-1, retention_bytes=-1) if is_tiered else config)

    def _with_flush(self, config: LogConfig) -> LogConfig:
        return config if self._flush_ms is None else replace(config, flush_ms=min(config.flush_ms, self._flush_ms))
