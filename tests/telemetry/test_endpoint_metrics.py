"""Metrics of the read endpoint: declared, and present as soon as there is something to say."""

from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.clock import FakeClock
from tierd.telemetry import EndpointListenerUse, EndpointUse, Metrics
from tierd.telemetry.endpoint_metrics import ENDPOINT_METRICS, endpoint_samples


def test_every_declared_metric_has_a_sample() -> None:
    use = EndpointUse(
        listeners={"PLAINTEXT": EndpointListenerUse(connections=2)},
        memory_bytes={"requests": 10, "answers": 20},
        watermark_age_s=0.5,
    )
    samples = list(endpoint_samples(use))
    assert {name for name, _, _ in samples} == {each.name for each in ENDPOINT_METRICS}
    assert ("tierd_endpoint_connections", ("PLAINTEXT",), 2) in samples
    assert ("tierd_endpoint_memory_bytes", ("answers",), 20) in samples


def test_age_of_watermarks_that_is_not_known_has_no_series() -> None:
    assert "tierd_endpoint_watermark_age_seconds" not in {name for name, _, _ in endpoint_samples(EndpointUse())}


def test_requests_are_counted_by_listener_request_and_outcome() -> None:
    metrics = Metrics(version="1", clock=FakeClock())
    for outcome in ("answered", "answered", "failed"):
        metrics.endpoint_request_ended(
            "PLAINTEXT", "Fetch", outcome=outcome, duration_s=0.1, principal="User:alice", size_bytes=100
        )
    text = metrics.render()[0].decode()
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["tierd_endpoint_requests_total", "Fetch", "PLAINTEXT", "answered"] == 2
    assert samples["tierd_endpoint_principal_bytes_total", "User:alice"] == 300
    assert samples["tierd_endpoint_request_seconds_count", "Fetch"] == 3
