"""Warnings about values of a valid configuration that are seldom meant. Pure."""

from tierd.config.config_warning import ConfigWarning
from tierd.config.connection_warnings import (
    unprotected_endpoint,
    unprotected_kafka,
    unprotected_metadata,
    unprotected_store,
)
from tierd.config.places import dotted
from tierd.config.schema import TierdConfig
from tierd.config.traversal import leaf_values


def config_warnings(config: TierdConfig) -> list[ConfigWarning]:
    """Return the values of ``config`` that are seldom meant, in the order of the schema."""
    return [
        *_tier_keeps_no_more(config),
        *unprotected_metadata(config.metadata),
        *unprotected_store(config.remote),
        *unprotected_kafka(config.leadership),
        *unprotected_endpoint(config.kafka),
    ]


def _tier_keeps_no_more(config: TierdConfig) -> list[ConfigWarning]:
    """Find the tier's retention left to brokers that delete their own copy by it.

    In log dirs with ``owner: tierd`` local retention is a setting of its own, as in a broker with KIP-405.
    """
    if all(log_dir.owner == "tierd" for log_dir in config.log_dirs):
        return []
    limits = {"retention": "no longer", "retention_bytes": "no more"}
    return [
        ConfigWarning(
            dotted(("topics", *location)),
            f"from-broker: brokers delete their own copy by the same limit: the tier keeps {limits[key]} than they do",
            f"write what the tier shall keep, such as {'365d' if key == 'retention' else '10TiB'}, or -1 for all of it",
        )
        for location, _, value in leaf_values(config.topics)
        if (key := str(location[-1])) in limits and value == "from-broker"
    ]
