"""``tierd topics`` at the real command line, over a tier that copy --once has filled."""

from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation
from tierd.clock import SystemClock
from tierd.cost import HOUR_MS, UsageLedger
from tierd.cost.usage_ledger import UsageLine


def listed(tierd: Installation, *arguments: str) -> list[dict[str, object]]:
    ended = tierd.tierd("topics", *arguments, "--json")
    assert ended.exit_code == 0, ended.output
    return list(ended.json())


def test_topics_as_json_are_the_documented_contract(copied: Installation) -> None:
    segments = copied.segments("orders-0")
    orders = next(each for each in listed(copied) if each["topic"] == "orders")
    assert orders == {
        "topic": "orders",
        "topic_id": segments[0]["topic_id"],
        "partitions": 1,
        "segments": 3,
        "size_bytes": sum(each["size_bytes"] for each in segments),
        "offsets": 12,
        "oldest_ms": min(each["max_timestamp_ms"] for each in segments),
        "newest_ms": max(each["max_timestamp_ms"] for each in segments),
        "unfinished_segments": 0,
        "expired_segments": 0,
        "expired_bytes": 0,
        "manifests": None,
        "records": None,
        "stored_bytes": None,
        "log_bytes": None,
    }


def test_cost_of_a_month_is_that_of_tierd_cost_and_unknown_without_use(copied: Installation, tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("currency: EUR\nper_1000_requests: {put: 4}\n")
    copied.configure({"cost": {"price_file": str(tmp_path / "prices.yaml")}})
    hour_ms = SystemClock().now_ms() // HOUR_MS * HOUR_MS - HOUR_MS
    UsageLedger(copied.state_dir / "usage").append([UsageLine(hour_ms, "orders", "put", 1000, 5)])
    report = copied.tierd("cost", "--json").json()

    costs = {each["topic"]: (each["currency"], each["month_cost"]) for each in listed(copied, "--cost")}
    shown = copied.tierd("topics", "--cost").stdout.splitlines()

    (orders,) = (each for each in report["topics"] if each["topic"] == "orders")
    assert costs == {"audit": ("EUR", None), "orders": ("EUR", orders["month"]["total"])}
    assert orders["month"]["total"] > 0
    assert "EUR a month" in shown[0]
    assert f"{orders['month']['total']:.2f}" in next(line for line in shown if line.startswith("orders"))


def test_partitions_have_their_range_and_manifests_their_records(copied: Installation) -> None:
    (orders,) = listed(copied, "orders", "--partitions", "--records")
    assert (orders["partition"], orders["start_offset"], orders["end_offset"]) == (0, 0, 12)
    assert (orders["manifests"], orders["records"]) == (3, 12)
    stored = [
        path.stat().st_size for path in copied.store_dir.rglob("orders-*/**/*") if path.suffix in {".log", ".indexes"}
    ]
    assert orders["stored_bytes"] == sum(stored)
    assert orders["log_bytes"] == orders["size_bytes"]


def test_manifest_that_is_gone_is_told_and_not_counted(copied: Installation) -> None:
    next(copied.store_dir.rglob("*orders*/**/*.manifest")).unlink()
    ended = copied.tierd("topics", "orders", "--records")
    assert ended.exit_code == 0, ended.output
    assert "manifests that could not be read, and are not counted: 1; run tierd verify" in ended.output
    assert listed(copied, "orders", "--records")[0]["manifests"] == 2


def test_lines_are_sorted_and_limited_and_the_sum_is_that_of_all(copied: Installation) -> None:
    sizes = [int(str(each["size_bytes"])) for each in listed(copied, "--sort", "size")]
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)
    assert [each["size_bytes"] for each in listed(copied, "--sort", "size", "--limit", "1")] == sizes[:1]
    assert listed(copied, "--sort", "newest", "--limit", "1") == listed(copied, "--sort", "newest")[:1]
    table = copied.tierd("topics", "--partitions").output
    assert "orders-0" in table
    assert table.splitlines()[-1].startswith("all")


def test_pattern_chooses_topics_and_one_without_a_topic_is_refused(copied: Installation) -> None:
    assert {each["topic"] for each in listed(copied, "ord*")} == {"orders"}
    ended = copied.tierd("topics", "ord*", "absent")
    assert ended.exit_code == 2
    assert "no topic of the tier matches 'absent'" in ended.output


def test_empty_tier_and_an_object_store_that_is_away_are_no_faults(
    tierd: Installation, log_dir: LogDirWriter, tmp_path: Path
) -> None:
    ended = tierd.tierd("topics")
    assert (ended.exit_code, ended.output.strip()) == (0, "the tier has no topic yet")
    assert tierd.tierd("copy", "--once").exit_code == 0
    tierd.store_dir.rename(tmp_path / "away")
    assert any(each["topic"] == "orders" for each in listed(tierd))
