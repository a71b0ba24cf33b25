"""Metrics of the control plane over MQTT, at each scrape."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tierd.telemetry.declaration import Sample, counter, gauge


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
    gauge("tierd_mqtt_connected", "1 while there is a connection to the MQTT broker, else 0."),
    counter("tierd_mqtt_reconnects_total", "Connections to the MQTT broker after the first one."),
    counter(
        "tierd_mqtt_stale_announcements_total", "Announcements that were older than what was known, and were dropped."
    ),
    counter(
        "tierd_mqtt_publish_dropped_total",
        "Messages that were not published: too_large, queue_full, denied by the MQTT broker.",
        ("reason",),
    ),
    counter("tierd_mqtt_damaged_messages_total", "Messages from the MQTT broker that could not be used."),
    gauge("tierd_mqtt_peers_online", "Daemons that are announced as online, with this one."),
    gauge("tierd_mqtt_waiting_messages", "Messages that wait to be published."),
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
