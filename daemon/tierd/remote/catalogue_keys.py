"""CatalogueKeys: keys of the objects that say what segments do not: topics, positions, nodes (DESIGN 13).

::

    <prefix>/<cluster id>/catalogue/topics/<topic>-<topic id>.json
    <prefix>/<cluster id>/catalogue/positions/<UTC time>-<node id>.json.zst
    <prefix>/<cluster id>/catalogue/nodes/<node id>.json

The time is ``20261121T151319.208Z``, so that the order of the keys is the order of the times. A topic name that is
longer with its id and ``.json`` than a part of a path may be is cut in two, as in the keys of segments (decision 29)::

    <prefix>/<cluster id>/catalogue/topics/<first 200 characters>/<the others>-<topic id>.json
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tierd.model import uuid_from_text, uuid_to_text

_MAX_NAME_BYTES = 255  # of a part of a path; topic names are ASCII
_HEAD_LENGTH = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999  # of the year 9999
_ID = "[A-Za-z0-9_-]{21}[AQgw]"  # the last character has two bits of the id's 128
_NODE = r"(?P<node>0|[1-9][0-9]{0,9})"
_NODE_NAME = re.compile(rf"nodes/{_NODE}\.json")
_POSITIONS_NAME = re.compile(rf"positions/(?P<time>[0-9]{{8}}T[0-9]{{6}}\.[0-9]{{3}}Z)-{_NODE}\.json\.zst")
_TOPIC_NAME = re.compile(rf"topics/(?:(?P<head>[\x21-\x7e]{{{_HEAD_LENGTH}}})/)?(?P<topic>[^/]+)-(?P<id>{_ID})\.json")


@dataclass(frozen=True, slots=True)
class CatalogueTopicKey:
    """Identity of a catalogued topic, parsed from the key of its object."""

    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True, order=True)
class CataloguePositionsKey:
    """Wall-clock moment and node of a positions object, parsed from its key."""

    taken_ms: int
    node_id: int


@dataclass(frozen=True, slots=True)
class CatalogueNodeKey:
    """Node, parsed from the key of its object."""

    node_id: int


CatalogueKey = CatalogueTopicKey | CataloguePositionsKey | CatalogueNodeKey


@dataclass(frozen=True, slots=True)
class CatalogueKeys:
    """Keys of the catalogue of one cluster.

    Attributes:
        prefix: beginning of every key of the catalogue, with the slash at its end.
    """

    prefix: str

    @property
    def all_topics(self) -> str:
        """Return the beginning of the key of every topic."""
        return f"{self.prefix}topics/"

    @property
    def all_positions(self) -> str:
        """Return the beginning of the key of every positions object."""
        return f"{self.prefix}positions/"

    @property
    def all_nodes(self) -> str:
        """Return the beginning of the key of every node."""
        return f"{self.prefix}nodes/"

    def key(self, identity: CatalogueKey) -> str:
        """Return the key of the object with this identity."""
        match identity:
            case CatalogueTopicKey(topic, topic_id):
                name = f"{topic}-{uuid_to_text(topic_id)}.json"
                if len(name) > _MAX_NAME_BYTES:
                    name = f"{name[:_HEAD_LENGTH]}/{name[_HEAD_LENGTH:]}"
                return f"{self.all_topics}{name}"
            case CataloguePositionsKey(taken_ms, node_id):
                return f"{self.all_positions}{_time_text(taken_ms)}-{node_id}.json.zst"
            case CatalogueNodeKey(node_id):
                return f"{self.all_nodes}{node_id}.json"

    def parse(self, key: str) -> CatalogueKey | None:
        """Return the identity whose object has ``key``; None for another key. ``key`` makes the same key of it."""
        name = key.removeprefix(self.prefix)
        if name == key:
            return None
        found = _parsed(name)
        return found if found is not None and self.key(found) == key else None


def _parsed(name: str) -> CatalogueKey | None:
    """Return the identity that ``name`` may have; another spelling of an identity is not refused here."""
    if node := _NODE_NAME.fullmatch(name):
        return CatalogueNodeKey(int(node["node"]))
    if positions := _POSITIONS_NAME.fullmatch(name):
        taken_ms = _time_of(positions["time"])
        return None if taken_ms is None else CataloguePositionsKey(taken_ms, int(positions["node"]))
    if topic := _TOPIC_NAME.fullmatch(name):
        return CatalogueTopicKey((topic["head"] or "") + topic["topic"], uuid_from_text(topic["id"]))
    return None


def _time_text(time_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(time_ms, 0), _LAST_MS))
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"


def _time_of(text: str) -> int | None:
    try:
        moment = datetime.strptime(text, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
