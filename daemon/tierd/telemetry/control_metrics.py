"""Metrics of the control plane over MQTT, at each scrape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierd.telemetry.declaration import Declaration, Kind
from tierd.telemetry.reading_metrics import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlUse:
    """State of the control plane.

    Attributes:
        publish_dropped: messages that were not sent, by reason; every reason is a key.
        peers_online: daemons that announced themselves, this one included, without the lost ones.
    """

    is_connected: bool
    reconnects: int
    stale_announcements: int
    publish_dropped: Mapping[str, int]
    damaged_messages: int
    peers_online: int
    waiting_messages: int


CONTROL_METRICS = (
    Declaration("tierd_mqtt_connected", Kind.GAUGE, "1 while there is a connection to the MQTT broker, else 0."),
    Declaration("tierd_mqtt_reconnects_total", Kind.COUNTER, "Connections to the MQTT broker after the first one."),
    Declaration(
        "tierd_mqtt_stale_announcements_total",
        Kind.COUNTER,
        "Announcements that were older than what was known, and were dropped.",
    ),
    Declaration(
        "tierd_mqtt_publish_dropped_total",
        Kind.COUNTER,
        "Messages that were not published: too_large, queue_full, denied by the MQTT broker.",
        ("reason",),
    ),
    Declaration(
        "tierd_mqtt_damaged_messages_total", Kind.COUNTER, "Messages from the MQTT broker that could not be used."
    ),
    Declaration("tierd_mqtt_peers_online", Kind.GAUGE, "Daemons that are announced as online, with this one."),
    Declaration("tierd_mqtt_waiting_messages", Kind.GAUGE, "Messages that wait to be published."),
)


def control_samples(use: ControlUse) -> Iterator[Sample]:
    """Return the samples of ``CONTROL_METRICS``."""
    yield "tierd_mqtt_connected", (), int(use.is_connected)
    yield "tierd_mqtt_reconnects_total", (), use.reconnects
    yield "tierd_mqtt_stale_announcements_total", (), use.stale_announcements
    for reason, count in sorted(use.publish_dropped.items()):
        yield "tierd_mqtt_publish_dropped_total", (reason,), count
    yield "tierd_mqtt_damaged_messages_total", (), use.damaged_messages
    yield "tierd_mqtt_peers_online", (), use.peers_online
    yield "tierd_mqtt_waiting_messages", (), use.waiting_messages
