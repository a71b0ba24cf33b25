"""Commands cost and estimate."""

import os
from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import run_tierd
from tests.scenarios.installation import Installation
from tierd.clock import SystemClock
from tierd.cost import HOUR_MS, UsageLedger
from tierd.cost.usage_ledger import UsageLine


def test_an_estimate_needs_no_configuration(log_dir: LogDirWriter) -> None:
    answer = run_tierd("estimate", str(log_dir.path), "--retention", "30d", "--zstd", "3", "--json")

    assert answer.exit_code == 0, answer.output
    topics = {topic["topic"]: topic for topic in answer.json()["topics"]}
    assert sorted(topics) == ["audit", "orders"]
    assert topics["orders"]["due_bytes"] > 0
    assert topics["audit"]["unknown_partitions"] == 1


def test_text_output_of_an_estimate_ends_with_a_sum(log_dir: LogDirWriter) -> None:
    answer = run_tierd("estimate", str(log_dir.path))

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.startswith("topic")
    assert "all" in answer.stdout
    assert "their pace is not known" in answer.stdout


def test_estimate_from_files_that_are_minutes_old_is_a_range(log_dir: LogDirWriter) -> None:
    for number, log in enumerate(sorted(log_dir.path.glob("orders-0/*.log"))):
        os.utime(log, (1_700_000_000 + 60 * number,) * 2)

    answer = run_tierd("estimate", str(log_dir.path))

    assert answer.exit_code == 0, answer.output
    assert "too short to tell: the files of 1 topics span less than a day (orders: 3m)" in answer.stdout
    lines = answer.stdout.splitlines()
    (said,) = (number for number, line in enumerate(lines) if line.startswith("too short to tell"))
    assert [line.partition(":")[0] for line in lines[said + 1 : said + 3]] == ["  Lower end", "  next"]
    assert " to " in next(line for line in answer.stdout.splitlines() if line.startswith("orders"))
    (orders, _) = run_tierd("estimate", str(log_dir.path), "--json").json()["topics"]
    assert orders["is_base_short"]
    assert orders["base_days"] == 180 / 86_400
    assert orders["low"]["month"]["total"] < orders["high"]["month"]["total"] == orders["month"]["total"]
    assert orders["low"]["stored_bytes"] * 400 < orders["high"]["stored_bytes"]


def test_retention_that_is_no_duration_is_refused(log_dir: LogDirWriter) -> None:
    answer = run_tierd("estimate", str(log_dir.path), "--retention", "soon")

    assert answer.exit_code == 2
    assert "is no duration" in answer.output


def test_cost_before_the_first_hour_reports_no_recorded_use(tierd: Installation) -> None:
    answer = tierd.tierd("cost")

    assert answer.exit_code == 0, answer.output
    assert "no use is recorded yet" in answer.stdout


def test_cost_prices_the_recorded_use_of_the_daemon(tierd: Installation, tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    lines = [UsageLine(now_ms - now_ms % HOUR_MS - HOUR_MS, "orders", "put", 1000, 5)]
    UsageLedger(tierd.state_dir / "usage").append(lines)
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nper_1000_requests: {put: 4}\n")

    answer = tierd.tierd("cost", "--price-file", str(prices), "--json")
    shown = tierd.tierd("cost", "--price-file", str(prices))

    assert answer.exit_code == 0, answer.output
    report = answer.json()
    assert (report["currency"], report["past"]["total"], report["topics"][0]["topic"]) == ("EUR", 4.0, "orders")
    assert "orders" in shown.stdout


def test_invalid_price_file_is_a_fault_with_line_and_column(tierd: Installation, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("storage: 3\n")

    answer = tierd.tierd("cost", "--price-file", str(prices))

    assert answer.exit_code == 2
    assert "prices.yaml:1:1: unknown key storage" in answer.output
