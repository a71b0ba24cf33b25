"""Metrics of push replication."""

from tests.fakes.manual_clock import ManualClock
from tierd.telemetry import (
    HistogramUse,
    Metrics,
    PushCopyUse,
    PushLeaderUse,
    PushPeerUse,
    PushStandbyUse,
    PushUse,
    StandbyLagUse,
    UnprotectedUse,
)

TWO = HistogramUse((1.0, 2.0), (1, 0, 2), 9.5)
NONE = HistogramUse((1.0,), (0, 0), 0.0)

LEADER = PushLeaderUse(
    memory_bytes=5,
    memory_max_bytes=50,
    stopping_sessions=1,
    session_starts=7,
    session_ends={"buffer_overflow": 2},
    failed_callbacks=0,
    awaiting_transition=3,
    retries={"no_answer": 4},
    resyncs=1,
    soft_limit_hits=0,
    queue_depths=(0, 6),
    peers=(PushPeerUse(node_id=2, sessions=9, oldest_unacked_s=0.25),),
    lags=(StandbyLagUse(topic="orders", partition=1, node_id=2, records=3, size_bytes=40, seconds=0.5),),
    request_bytes=TWO,
    request_partitions=NONE,
    request_seconds=NONE,
    processing_seconds=NONE,
    tail_partitions=10,
    tail_watched=8,
    unread_partitions=2,
    tail_bytes=100,
    tail_cpu_s=1.5,
)
STANDBY = PushStandbyUse(
    partitions=3,
    pushed_partitions=2,
    pull_transitions=1,
    append_errors={"kafka_storage_error": 2},
    duplicate_appends=0,
    appended_bytes=11,
    fetched_bytes=12,
    truncated_records=0,
    truncations_below_high_watermark=0,
    memory_bytes=0,
    copies=(
        PushCopyUse(topic="orders", partition=0, lag_records=4),
        PushCopyUse(topic="orders", partition=1, lag_records=None),
    ),
)


def rendered(metrics: Metrics) -> list[str]:
    return metrics.render()[0].decode().splitlines()


def test_both_sides_are_shown() -> None:
    metrics = Metrics(version="1", clock=ManualClock())
    metrics.sources.push = lambda: PushUse(connections=2, refused_connections=0, leader=LEADER, standby=STANDBY)
    lines = rendered(metrics)
    for line in (
        'tierd_push_session_ends_total{reason="buffer_overflow"} 2.0',
        'tierd_push_retries_total{reason="no_answer"} 4.0',
        'tierd_push_queue_depth{pusher="1"} 6.0',
        'tierd_push_active_sessions{peer="2"} 9.0',
        'tierd_push_lag_seconds{partition="1",peer="2",topic="orders"} 0.5',
        'tierd_push_request_bytes_bucket{le="1.0"} 1.0',
        'tierd_push_request_bytes_bucket{le="+Inf"} 3.0',
        "tierd_push_request_bytes_sum 9.5",
        "tierd_push_tail_cpu_seconds_total 1.5",
        "tierd_push_unread_partitions 2.0",
        'tierd_push_partitions{state="push"} 2.0',
        'tierd_push_partitions{state="pull"} 1.0',
        'tierd_push_copy_lag_records{partition="0",topic="orders"} 4.0',
    ):
        assert line in lines
    assert not [line for line in lines if line.startswith('tierd_push_copy_lag_records{partition="1"')]


def test_unprotected_records_are_shown_without_push() -> None:
    metrics = Metrics(version="1", clock=ManualClock())
    metrics.sources.unprotected = lambda: [
        UnprotectedUse(topic="orders", partition=0, seconds=2.0, size_bytes=10),
        UnprotectedUse(topic="orders", partition=1, seconds=1.0, size_bytes=30),
    ]
    lines = rendered(metrics)
    assert 'tierd_unprotected_seconds{partition="0",topic="orders"} 2.0' in lines
    assert "tierd_unprotected_max_seconds 2.0" in lines
    assert "tierd_unprotected_max_bytes 30.0" in lines
    assert not [line for line in lines if line.startswith("tierd_push_active")]
