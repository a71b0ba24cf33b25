"""Changes by SIGHUP: the difference of two configurations, and the part that a running daemon can take over."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from tierd.config import TierdConfig

LIVE_KEYS = frozenset(
    {
        "copy.concurrency",
        "expire.concurrency",
        "kafka.access",
        "kafka.quarantine",
        "kafka.quotas",
        "kafka.sasl",
        "kafka.tls",
        "logging.format",
        "logging.level",
        "push.enabled",
        "push.peers",
        "push.standbys",
        "push.tls",
        "push.topics",
        "topics.defaults",
        "topics.exclude",
        "topics.include",
        "topics.overrides",
    }
)
"""Keys, and sections below a section, that take effect at once; every other key waits for a restart."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Keys of the file whose values differ, as the file writes them, each in order of name."""

    live: tuple[str, ...]
    after_restart: tuple[str, ...]


def changed_keys(old: TierdConfig, new: TierdConfig) -> ConfigChange:
    """Compare two configurations key by key."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return ConfigChange(
        live=tuple(key for key in changed if _is_live(key)),
        after_restart=tuple(key for key in changed if not _is_live(key)),
    )


def merged(old: TierdConfig, new: TierdConfig) -> TierdConfig:
    """Return ``old`` with the values of ``new`` under the live keys: what is in force after a reload."""
    sections: dict[str, BaseModel] = {}
    for name, field in type(old).model_fields.items():
        section, wanted = getattr(old, name), getattr(new, name)
        if isinstance(section, BaseModel):
            live = _live_fields(field.alias or name, section)
            sections[name] = section.model_copy(update={each: getattr(wanted, each) for each in live})
    return old.model_copy(update=sections)


def _is_live(key: str) -> bool:
    return key in LIVE_KEYS or key.rpartition(".")[0] in LIVE_KEYS


def _live_fields(section_name: str, section: BaseModel) -> list[str]:
    fields: Mapping[str, object] = type(section).model_fields
    aliases = {name: type(section).model_fields[name].alias or name for name in fields}
    return [name for name, alias in aliases.items() if f"{section_name}.{alias}" in LIVE_KEYS]


def _leaves(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in type(settings).model_fields.items():
        key, value = prefix + (field.alias or name), getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value
