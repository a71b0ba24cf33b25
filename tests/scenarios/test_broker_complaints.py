"""Complaints in the log of a broker: what a busy machine causes is left out, and only that."""

from pathlib import Path

import pytest

from tests.scenarios.broker_complaints import complaints

BEGINNING = "2026-11-23 20:00:00,000 ERROR "
HEARTBEAT = (
    "kafka.server.ControllerApis - [ControllerApis nodeId=1] Unexpected error handling request "
    "RequestHeader(apiKey=BROKER_HEARTBEAT, apiVersion=1, clientId=1, correlationId=7, headerVersion=2) -- "
    "BrokerHeartbeatRequestData(brokerId=1)"
)
REASSIGNMENT = (
    "kafka.server.ControllerApis - [ControllerApis nodeId=3] Unexpected error handling request Forwarded request: "
    "RequestContext(header=RequestHeader(apiKey=ENVELOPE, apiVersion=0, clientId=2, correlationId=5, headerVersion=2), "
    "securityProtocol=PLAINTEXT) RequestHeader(apiKey=ALTER_PARTITION_REASSIGNMENTS, apiVersion=0, headerVersion=2) -- "
    "AlterPartitionReassignmentsRequestData(timeoutMs=30000)"
)
LOADING = (
    "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime - [GroupCoordinator id=1] Failed to load metadata "
    "from __consumer_offsets-0 with epoch 0 due to Stopped loading records from __consumer_offsets-0 {}"
)
ERRORS = "org.apache.kafka.common.errors"


def log_of(tmp_path: Path, *lines: str) -> Path:
    log = tmp_path / "server.log"
    log.write_text("".join(f"{line}\n" for line in lines))
    return log


@pytest.mark.parametrize(
    "lines",
    [
        (
            (
                f"{BEGINNING}org.apache.kafka.controller.EventPerformanceMonitor - [QuorumController id=1] "
                "Exceptionally slow controller event writeNoOpRecord took 2604 ms."
            ),
        ),
        (
            (
                f"{BEGINNING}org.apache.kafka.controller.EventPerformanceMonitor - [QuorumController id=3] "
                "Exceptionally slow controller event "
                "handleLoadSnapshot[snapshotId=OffsetAndEpoch[offset=152, epoch=3]] took 2111 ms."
            ),
        ),
        (
            (
                f"{BEGINNING}org.apache.kafka.controller.ReplicationControlManager - [QuorumController id=1] "
                "processExpiredBrokerHeartbeat: controller event queue overloaded. Timed out heartbeat from broker 1."
            ),
        ),
        (BEGINNING + LOADING.format("because the partition is not online or is no longer the leader.."),),
        (BEGINNING + HEARTBEAT, f"{ERRORS}.NotControllerException: The active controller appears to be node 2."),
        (
            BEGINNING + HEARTBEAT.replace("BROKER_HEARTBEAT", "CONTROLLER_REGISTRATION"),
            f"java.util.concurrent.CompletionException: {ERRORS}.NotControllerException: it appears to be node 1.",
        ),
        (BEGINNING + REASSIGNMENT, f"{ERRORS}.NotControllerException: The active controller appears to be node 1."),
    ],
)
def test_errors_of_a_busy_machine_are_no_complaints(tmp_path: Path, lines: tuple[str, ...]) -> None:
    assert complaints(log_of(tmp_path, "INFO started", *lines)) == []


@pytest.mark.parametrize(
    "lines",
    [
        (BEGINNING + HEARTBEAT, f"{ERRORS}.InconsistentClusterIdException: another cluster"),
        (BEGINNING + HEARTBEAT.replace("BROKER_HEARTBEAT", "FETCH"), f"{ERRORS}.NotControllerException: node 2"),
        (BEGINNING + REASSIGNMENT, f"{ERRORS}.UnknownServerException: a fault"),
        (BEGINNING + REASSIGNMENT.replace("ALTER_PARTITION_RE", "RE"), f"{ERRORS}.NotControllerException: node 2"),
        (f"{BEGINNING}kafka.log.LogManager - could not load a log",),
        (BEGINNING + LOADING.format("because a record cannot be read"),),
        ("WARN found a corrupt index",),
        ("WARN the quorum-state is not there",),
    ],
)
def test_errors_and_warnings_that_a_busy_machine_does_not_cause_are_complaints(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    found = [*lines, "INFO started"]
    assert complaints(log_of(tmp_path, *found)) == [f"{found[0]}\n{found[1]}"]


def test_more_words_may_make_a_complaint(tmp_path: Path) -> None:
    line = "WARN OutOfOrderSequenceException of a producer"

    assert complaints(log_of(tmp_path, line), "OutOfOrderSequence") == [f"{line}\n"]
    assert complaints(log_of(tmp_path, line)) == []
