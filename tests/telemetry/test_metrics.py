import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.clock import FakeClock
from tierd.telemetry import (
    CacheUse,
    DiskUse,
    EngineUse,
    HoldUsage,
    HostUse,
    Latency,
    MetadataCounts,
    Metrics,
    PartitionLag,
    ReadingUse,
    StoreRestoreUse,
    render_store_restore,
)
from tierd.telemetry.declaration import Kind
from tierd.telemetry.metrics import DECLARATIONS, WorkTotals

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def metrics(clock: FakeClock | None = None) -> Metrics:
    return Metrics(version="9.8.7", clock=clock or FakeClock())


def scrape(of: Metrics) -> Samples:
    body, content_type = of.render()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def lag(**changes: int | str | None) -> PartitionLag:
    given: dict[str, object] = {
        "topic": "orders",
        "partition": 3,
        "lag_segments": 2,
        "lag_bytes": 200,
        "oldest_ms": None,
    }
    return PartitionLag(**(given | changes))  # type: ignore[arg-type]  # each test passes the right types


ORDERS_3 = (("partition", "3"), ("topic", "orders"))
ORDERS = (("topic", "orders"),)


def test_a_finished_copy_counts_its_bytes_and_its_time() -> None:
    it = metrics()

    it.copy_requested("orders")
    it.segment_copied("orders", size_bytes=100, seconds=3)

    samples = scrape(it)
    assert samples["tierd_remote_copy_requests_total", ORDERS] == 1
    assert samples["tierd_remote_copy_bytes_total", ORDERS] == 100
    assert samples["tierd_remote_copy_seconds_sum", ()] == 3


def test_totals_are_sums_over_all_topics_and_operations() -> None:
    it = metrics()
    for topic in ("orders", "audit"):
        it.segment_copied(topic, size_bytes=100, seconds=3)
        it.fetch_requested(topic)
        it.bytes_fetched(topic, 7)
        it.delete_requested(topic)
    it.copy_failed("orders")
    it.fetch_failed("orders")
    it.delete_failed("orders")
    it.object_store_called("put", outcome="ok", duration_s=1, size_bytes=100)
    it.object_store_called("get", outcome="error", duration_s=1, size_bytes=5)

    assert it.totals() == WorkTotals(
        copied_segments=2,
        copied_bytes=200,
        copy_errors=1,
        fetches=2,
        fetched_bytes=14,
        fetch_errors=1,
        deletions=2,
        delete_errors=1,
        store_requests=2,
        store_bytes=105,
    )


def test_last_success_of_a_task_is_exported_as_a_time() -> None:
    it = metrics(FakeClock(now_ms=50_000))

    it.task_succeeded("copy")

    assert scrape(it)["tierd_last_success_timestamp_seconds", (("task", "copy"),)] == 50


def test_events_are_counted_by_topic() -> None:
    it = metrics()

    it.copy_failed("orders")
    it.gap_found("orders", offsets=12)
    it.fetch_requested("orders")
    it.fetch_failed("orders")
    it.bytes_fetched("orders", 7)
    it.delete_requested("orders")
    it.delete_failed("orders")
    it.dangling_swept("orders")
    it.uploads_aborted(2)

    samples = scrape(it)
    assert samples["tierd_remote_copy_errors_total", ORDERS] == 1
    assert samples["tierd_gap_offsets_total", ORDERS] == 12
    assert samples["tierd_remote_fetch_requests_total", ORDERS] == 1
    assert samples["tierd_remote_fetch_errors_total", ORDERS] == 1
    assert samples["tierd_remote_fetch_bytes_total", ORDERS] == 7
    assert samples["tierd_remote_delete_requests_total", ORDERS] == 1
    assert samples["tierd_remote_delete_errors_total", ORDERS] == 1
    assert samples["tierd_dangling_segments_swept_total", ORDERS] == 1
    assert samples["tierd_uploads_aborted_total", ()] == 2


def test_attempts_at_the_store_are_counted_by_outcome() -> None:
    it = metrics()
    it.object_store_attempted("upload_part", outcome="retriable")
    it.object_store_attempted("upload_part", outcome="retriable")
    labels = (("operation", "upload_part"), ("outcome", "retriable"))
    assert scrape(it)["tierd_object_store_attempts_total", labels] == 2


def test_call_to_the_store_is_counted_with_its_duration_and_size() -> None:
    it = metrics()

    it.object_store_called("put", outcome="ok", duration_s=0.3, size_bytes=9)
    it.object_store_called("get", outcome="not_found", duration_s=0.1)

    samples = scrape(it)
    assert samples["tierd_object_store_requests_total", (("operation", "put"), ("outcome", "ok"))] == 1
    assert samples["tierd_object_store_requests_total", (("operation", "get"), ("outcome", "not_found"))] == 1
    assert samples["tierd_object_store_bytes_total", (("operation", "put"),)] == 9
    assert samples["tierd_object_store_seconds_sum", (("operation", "put"),)] == pytest.approx(0.3)
    assert samples["tierd_object_store_seconds_bucket", (("le", "0.1"), ("operation", "put"))] == 0
    assert samples["tierd_object_store_seconds_bucket", (("le", "0.5"), ("operation", "put"))] == 1


def test_age_of_the_oldest_byte_grows_while_copying_stalls() -> None:
    clock = FakeClock(now_ms=100_000)
    it = metrics(clock)
    it.sources.partitions = lambda: [lag(oldest_ms=90_000), lag(partition=4, oldest_ms=70_000)]

    assert scrape(it)["tierd_remote_copy_lag_seconds", ORDERS_3] == 10
    clock.advance(5)

    samples = scrape(it)
    assert samples["tierd_remote_copy_lag_seconds", ORDERS_3] == 15
    assert samples["tierd_remote_copy_lag_max_seconds", ()] == 35


def test_age_is_zero_when_the_clock_steps_back() -> None:
    clock = FakeClock(now_ms=100_000)
    it = metrics(clock)
    it.sources.partitions = lambda: [lag(oldest_ms=100_000)]
    clock.step_wall_clock(-50_000)

    assert scrape(it)["tierd_remote_copy_lag_seconds", ORDERS_3] == 0


@pytest.mark.spec("remote-tiering 21")
def test_gauges_of_a_removed_partition_are_removed() -> None:
    it = metrics()
    partitions = [lag(metadata_count=4, remote_size_bytes=1000)]
    it.sources.partitions = lambda: partitions

    before = scrape(it)
    partitions.clear()
    after = scrape(it)

    assert before["tierd_remote_log_metadata_count", ORDERS_3] == 4
    assert before["tierd_remote_log_size_bytes", ORDERS_3] == 1000
    assert before["tierd_remote_copy_lag_segments", ORDERS_3] == 2
    assert not [labels for _, labels in after if ("topic", "orders") in labels]
    assert after["tierd_remote_copy_lag_max_bytes", ()] == 0


@pytest.mark.spec("remote-tiering 21")
def test_counters_of_a_forgotten_topic_are_removed_and_those_of_others_are_kept() -> None:
    it = metrics()
    it.segment_copied("orders", size_bytes=1, seconds=1)
    it.segment_copied("payments", size_bytes=2, seconds=1)

    it.forget_topic("orders")
    it.forget_topic("never-seen")

    samples = scrape(it)
    assert ("tierd_remote_copy_bytes_total", ORDERS) not in samples
    assert samples["tierd_remote_copy_bytes_total", (("topic", "payments"),)] == 2


def test_partitions_are_counted_by_state_and_absent_states_are_zero() -> None:
    it = metrics()
    it.sources.partitions = lambda: [lag(state="quarantined"), lag(partition=4, state="idle"), lag(partition=5)]

    samples = scrape(it)
    assert samples["tierd_partitions", (("state", "idle"),)] == 2
    assert samples["tierd_partitions", (("state", "paused"),)] == 0
    assert samples["tierd_quarantined_partitions", ()] == 1


def test_host_is_read_at_each_scrape_and_a_silent_disk_has_no_series() -> None:
    it = metrics()
    assert ("tierd_ready", ()) not in scrape(it)
    it.sources.host = lambda: HostUse(
        is_ready=False, offline={"/a": True, "/b": False}, disks={"/b": DiskUse(30, 1000)}
    )

    samples = scrape(it)
    assert samples["tierd_ready", ()] == 0
    assert samples["tierd_log_dir_offline", (("log_dir", "/a"),)] == 1
    assert samples["tierd_log_dir_offline", (("log_dir", "/b"),)] == 0
    assert samples["tierd_disk_free_bytes", (("directory", "/b"),)] == 30
    assert samples["tierd_disk_size_bytes", (("directory", "/b"),)] == 1000
    assert ("tierd_disk_free_bytes", (("directory", "/a"),)) not in samples


def test_hold_without_a_limit_has_no_series_of_the_limit() -> None:
    it = metrics()
    it.sources.holds = lambda: HoldUsage(segments=2, size_bytes=10)

    assert ("tierd_hold_max_bytes", ()) not in scrape(it)


def test_holds_and_metadata_are_read_at_each_scrape() -> None:
    it = metrics()
    it.sources.holds = lambda: HoldUsage(segments=2, size_bytes=10, max_bytes=50)
    it.sources.metadata = lambda: MetadataCounts(
        reloads=1,
        fenced_writes=2,
        unknown_outcomes=3,
        invalid_transitions=4,
        tombstones=5,
        dirty_partitions=6,
        backend={"commit": Latency(count=8, total_s=0.5)},
        backend_errors={"commit": 7},
    )

    samples = scrape(it)
    assert (samples["tierd_hold_segments", ()], samples["tierd_hold_bytes", ()]) == (2, 10)
    assert samples["tierd_hold_max_bytes", ()] == 50
    assert samples["tierd_metadata_reloads_total", ()] == 1
    assert samples["tierd_metadata_fenced_writes_total", ()] == 2
    assert samples["tierd_metadata_unknown_outcomes_total", ()] == 3
    assert samples["tierd_invalid_transitions_total", ()] == 4
    assert samples["tierd_metadata_tombstones", ()] == 5
    assert samples["tierd_metadata_dirty_partitions", ()] == 6
    assert samples["tierd_metadata_backend_errors_total", (("operation", "commit"),)] == 7
    assert samples["tierd_metadata_backend_seconds_count", (("operation", "commit"),)] == 8
    assert samples["tierd_metadata_backend_seconds_sum", (("operation", "commit"),)] == 0.5


def test_failed_reload_is_shown_until_a_reload_succeeds() -> None:
    it = metrics()

    assert scrape(it)["tierd_config_reload_success", ()] == 1
    it.config_reloaded(success=False)
    assert scrape(it)["tierd_config_reload_success", ()] == 0
    it.config_reloaded(success=True)
    assert scrape(it)["tierd_config_reload_success", ()] == 1


def test_version_is_a_label() -> None:
    assert [dict(labels)["version"] for name, labels in scrape(metrics()) if name == "tierd_build_info"] == ["9.8.7"]


def test_two_registries_have_separate_metrics() -> None:
    first, second = metrics(), metrics()
    first.uploads_aborted(3)

    assert scrape(second)["tierd_uploads_aborted_total", ()] == 0


def test_every_exposed_metric_of_tierd_is_declared_once() -> None:
    names = [declaration.name for declaration in DECLARATIONS]
    restores = StoreRestoreUse(
        changelogs=(), records=0, read_bytes={}, wipes={}, failures=0, checkpoints=0, checkpoint_s=0.0
    )
    body = (metrics().render()[0] + render_store_restore(restores)).decode()

    assert len(names) == len(set(names))
    assert {name for name in re.findall(r"^# TYPE (\S+)", body, re.MULTILINE) if name.startswith("tierd_")} == set(
        names
    )


def test_metric_names_end_in_their_unit_and_counters_in_total() -> None:
    for declaration in DECLARATIONS:
        assert declaration.name.startswith("tierd_")
        assert declaration.name.endswith("_total") == (declaration.kind is Kind.COUNTER), declaration.name
        assert declaration.help.endswith("."), declaration.name


def test_metric_labels_are_of_a_fixed_set() -> None:
    allowed = {"topic", "partition", "operation", "outcome", "task", "state", "version", "python", "pool", "quota"}
    allowed |= {"cache", "count", "result", "service", "reason"}
    allowed |= {"kind", "part"}  # of the catalogue: kinds of its objects, parts of the work on them
    allowed |= {"source"}  # of the bytes of a restore: remote, local
    allowed |= {"listener", "request", "principal"}  # of the read endpoint, which bounds the principals
    allowed |= {"directory", "log_dir"}  # of the configuration
    allowed |= {"peer", "pusher"}  # of push replication: node ids of the configuration, numbers from 0
    allowed |= {"request_class"}  # as stores price requests: put, list, get, delete

    assert {label for declaration in DECLARATIONS for label in declaration.labels} <= allowed


def test_throttle_series_exist_only_after_a_throttle_of_their_quota() -> None:
    metrics = Metrics(version="1", clock=FakeClock())
    assert "tierd_remote_throttle_seconds_" not in metrics.render()[0].decode()
    metrics.copy_throttled(3000)
    metrics.copy_throttled(1000)
    body = metrics.render()[0].decode()
    assert 'tierd_remote_throttle_seconds_sum{quota="copy"} 4.0' in body
    assert 'tierd_remote_throttle_seconds_count{quota="copy"} 2.0' in body
    assert 'tierd_remote_throttle_max_seconds{quota="copy"} 3.0' in body
    assert 'quota="fetch"' not in body


def test_use_of_the_engine_is_read_at_each_scrape() -> None:
    metrics = Metrics(version="1", clock=FakeClock())
    metrics.sources.engine = lambda: EngineUse(idle_ratio={"copy": 0.25}, bytes_per_second={"copy": 7.0})
    body = metrics.render()[0].decode()
    assert 'tierd_remote_log_manager_tasks_idle_ratio{pool="copy"} 0.25' in body
    assert 'tierd_remote_quota_bytes_per_second{quota="copy"} 7.0' in body


def test_reads_and_their_caches_are_read_at_each_scrape() -> None:
    it = metrics()
    chunks = CacheUse(hits=3, misses=2, hit_bytes=30, miss_bytes=20, evictions=1, damaged=4, entries=5, size_bytes=50)
    it.sources.reading = lambda: ReadingUse(
        running=6, pending=7, rejected=8, caches={"chunks": chunks}, bytes_per_second=9.0
    )

    samples = scrape(it)
    assert samples["tierd_remote_log_reader_task_queue_size", ()] == 7
    assert samples["tierd_remote_log_readers_running", ()] == 6
    assert samples["tierd_remote_log_reads_rejected_total", ()] == 8
    assert samples["tierd_remote_quota_bytes_per_second", (("quota", "fetch"),)] == 9
    assert samples["tierd_cache_requests_total", (("cache", "chunks"), ("outcome", "hit"))] == 3
    assert samples["tierd_cache_bytes_total", (("cache", "chunks"), ("outcome", "miss"))] == 20
    assert samples["tierd_cache_damaged_total", (("cache", "chunks"),)] == 4
    assert samples["tierd_cache_size_bytes", (("cache", "chunks"),)] == 50


def test_services_have_the_duration_of_their_outage() -> None:
    it = metrics()
    it.sources.unreachable_s = lambda: {"object_store": 12.5, "metadata_store": 0.0}

    body = it.render()[0].decode()

    assert 'tierd_service_unreachable_seconds{service="object_store"} 12.5' in body
    assert 'tierd_service_unreachable_seconds{service="metadata_store"} 0.0' in body
    assert 'service="kafka"' not in body
