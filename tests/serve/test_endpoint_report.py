"""The read endpoint in words."""

from tierd.serve import endpoint_line, endpoint_problems, group_lines
from tierd.serve.control_answers import EndpointGroupSummary, EndpointListenerSummary, EndpointSummary


def test_endpoint_that_is_off_says_nothing() -> None:
    off = EndpointSummary()
    assert (endpoint_line(off), endpoint_problems(off), group_lines(off)) == ("", [], [])


def test_line_names_topics_connections_and_the_age_of_watermarks() -> None:
    listeners = {"TLS": EndpointListenerSummary(connections=2), "PLAINTEXT": EndpointListenerSummary(connections=1)}
    endpoint = EndpointSummary(listeners=listeners, topics=3)
    assert endpoint_line(endpoint) == "read endpoint: 3 topics, connections: 1 at PLAINTEXT, 2 at TLS"
    aged = endpoint.model_copy(update={"watermark_age_s": 4.26, "watermark_source": "checkpoint"})
    assert endpoint_line(aged).endswith("2 at TLS, high watermarks of the checkpoint 4.3 s old")


def test_problems_are_missing_watermarks_unusable_certificates_and_clients_that_are_held_back() -> None:
    endpoint = EndpointSummary(
        watermark_problem="not among the brokers",
        certificate_problem="key.pem is not the key of cert.pem",
        held_listeners=("RESTORED",),
        held_principals=("User:app-.*",),
    )
    assert endpoint_problems(endpoint) == [
        "read endpoint: no high watermarks from the broker: not among the brokers",
        "read endpoint: the former certificate is in force: key.pem is not the key of cert.pem",
        "read endpoint: held back until tierd endpoint release: listener RESTORED, User:app-.*",
    ]


def test_groups_with_the_largest_lag_come_first_and_the_others_are_counted() -> None:
    groups = {
        f"g{n:02}": EndpointGroupSummary(state="Stable", members=1, partitions=2, lag=n, is_lag_complete=True)
        for n in range(21)
    }
    groups["unknown"] = EndpointGroupSummary(state="Empty")
    groups["partly"] = EndpointGroupSummary(state="Empty", partitions=2, lag=100)
    lines = group_lines(EndpointSummary(groups=groups))
    assert lines[0] == "group partly: Empty, 0 members, 2 partitions, at least 100 records behind"
    assert lines[1] == "group g20: Stable, 1 members, 2 partitions, 20 records behind"
    assert lines[-1] == "3 more groups: tierd status --json"
    assert len(lines) == 21
    assert group_lines(EndpointSummary(groups={"unknown": groups["unknown"]})) == [
        "group unknown: Empty, 0 members, 0 partitions, lag not known"
    ]
