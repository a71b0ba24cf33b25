"""Messages of the control socket: encoding, refused requests, and the fields that ``--json`` keeps."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import JsonValue, TypeAdapter

from tests.coded import coded
from tierd.errors import TierError, TierErrorCode
from tierd.model import TopicPartition
from tierd.pipeline import RunReport, report_json
from tierd.pipeline.committing import RunTally
from tierd.pipeline.running.run_history import RunOutcome
from tierd.serve import (
    ATTEST_ERASURE,
    CANCEL_ERASURE,
    COMPACT,
    DELETE_PARTITION,
    EXPIRE,
    FILE_ERASURE,
    PAUSE,
    RESUME,
    STATUS,
    STEP_ERASURES,
    SYNC,
    UNDELETE,
    AttestErasureRequest,
    CancelErasureRequest,
    CompactionPlan,
    CompactRequest,
    ControlVerb,
    DeletePartitionRequest,
    ExpireRequest,
    FileErasureRequest,
    Outage,
    PartitionsRequest,
    RunBegun,
    StatusAnswer,
    StatusRequest,
    StatusSnapshot,
    StepErasuresRequest,
    UndeleteRequest,
)
from tierd.serve.control_protocol import ControlRequest, ControlRequestLine
from tierd.tiering import LogDirState, PartitionStatus
from tierd.tiering.local.partition_log import CopyLag

ORDERS, AUDIT = TopicPartition("orders", 0), TopicPartition("audit", 3)
ID, ID_TEXT = UUID(int=1), "AAAAAAAAAAAAAAAAAAAAAQ"

# Lines of earlier and later versions: the line of each verb, with each of its options.
LINES: list[tuple[ControlVerb[Any, Any], ControlRequest, dict[str, JsonValue]]] = [
    (STATUS, StatusRequest(), {}),
    (PAUSE, PartitionsRequest(), {}),
    (RESUME, PartitionsRequest(partitions=(ORDERS, AUDIT)), {"partitions": ["orders-0", "audit-3"]}),
    (SYNC, PartitionsRequest(partitions=(ORDERS,)), {"partitions": ["orders-0"]}),
    (EXPIRE, ExpireRequest(), {}),
    (
        EXPIRE,
        ExpireRequest(partitions=(ORDERS,), dry_run=True),
        {"partitions": ["orders-0"], "options": {"dry_run": True}},
    ),
    (
        UNDELETE,
        UndeleteRequest(partition=ORDERS, segments=(ID,), force=True, dry_run=True),
        {"partitions": ["orders-0"], "options": {"segments": [ID_TEXT], "force": True, "dry_run": True}},
    ),
    (
        DELETE_PARTITION,
        DeletePartitionRequest(partition=ORDERS, topic_id=ID, at_once=True, force=True),
        {"partitions": ["orders-0"], "options": {"topic_id": ID_TEXT, "at_once": True, "force": True}},
    ),
    (COMPACT, CompactRequest(), {}),
    (COMPACT, CompactRequest(dry_run=True), {"options": {"dry_run": True}}),
    (
        FILE_ERASURE,
        FileErasureRequest(
            partition=ORDERS, keys=(b"\x00\xff", b""), by="a@b", reason="17", at_once=True, removes_unread=True
        ),
        {
            "partitions": ["orders-0"],
            "options": {"keys": ["AP8=", ""], "by": "a@b", "reason": "17", "at_once": True, "removes_unread": True},
        },
    ),
    (CANCEL_ERASURE, CancelErasureRequest(request_id=ID), {"options": {"request_id": ID_TEXT}}),
    (
        ATTEST_ERASURE,
        AttestErasureRequest(request_id=ID, by="a@b", statement="seen"),
        {"options": {"request_id": ID_TEXT, "by": "a@b", "statement": "seen"}},
    ),
    (STEP_ERASURES, StepErasuresRequest(partitions=(ORDERS,)), {"partitions": ["orders-0"]}),
]


@pytest.mark.parametrize(("verb", "request_", "fields"), LINES)
def test_request_is_parsed_from_its_own_line(
    verb: ControlVerb[Any, Any], request_: ControlRequest, fields: dict[str, JsonValue]
) -> None:
    line = verb.request_line(request_)

    assert line == ControlRequestLine.model_validate({"command": verb.name, **fields})
    assert verb.parse_request(ControlRequestLine.model_validate_json(line.model_dump_json())) == request_


def test_request_with_explicit_default_values_is_parsed() -> None:
    line = {
        "command": "delete-partition",
        "partitions": ["orders-0"],
        "options": {"topic_id": "", "at_once": False, "force": False},
    }

    parsed = DELETE_PARTITION.parse_request(ControlRequestLine.model_validate(line))

    assert parsed == DeletePartitionRequest(partition=ORDERS)


@pytest.mark.parametrize(
    ("verb", "fields", "fault"),
    [
        (PAUSE, {"options": {"force": True}}, "pause: no such option: force"),
        (PAUSE, {"options": {"partitions": ["orders-0"]}}, "pause: no such option: partitions"),
        (PAUSE, {"partitions": ["orders-0", "x"]}, "pause: partitions.1: 'x' is not <topic>-<partition>"),
        (EXPIRE, {"options": {"dry_run": "yes"}}, "expire: options.dry_run: Input should be a valid boolean"),
        (UNDELETE, {}, "undelete: partitions: 0 partitions were named, not one"),
        (UNDELETE, {"partitions": ["a-0", "b-0"]}, "undelete: partitions: 2 partitions were named, not one"),
        (UNDELETE, {"partitions": ["x"]}, "undelete: partition: 'x' is not <topic>-<partition>"),
        (
            UNDELETE,
            {"partitions": ["a-0"], "options": {"segments": "all"}},
            "undelete: options.segments: Input should be a valid tuple",
        ),
        (
            UNDELETE,
            {"partitions": ["a-0"], "options": {"segments": ["short"]}},
            "undelete: options.segments.0: 'short' is not a 22-character topic or segment id",
        ),
        (FILE_ERASURE, {"partitions": ["a-0"]}, "erase: options.keys: Field required"),
        (
            FILE_ERASURE,
            {"partitions": ["a-0"], "options": {"keys": ["secret!"]}},
            "erase: options.keys.0: not base64: Only base64 data is allowed",
        ),
        (CANCEL_ERASURE, {}, "cancel-erasure: options.request_id: Field required"),
        (
            CANCEL_ERASURE,
            {"partitions": ["a-0"], "options": {"request_id": ID_TEXT}},
            "cancel-erasure: partitions: this verb takes none",
        ),
    ],
)
def test_fault_of_a_request_names_its_field(
    verb: ControlVerb[Any, Any], fields: dict[str, JsonValue], fault: str
) -> None:
    with pytest.raises(TierError, check=coded(TierErrorCode.CONTROL)) as refused:
        verb.parse_request(ControlRequestLine.model_validate({"command": verb.name, **fields}))

    assert str(refused.value) == fault
    assert refused.value.remedy == "use the tierd command of the daemon's version"


def test_keys_are_not_shown_with_a_request() -> None:
    assert "alice" not in repr(FileErasureRequest(partition=ORDERS, keys=(b"alice",)))


def test_fault_of_an_answer_names_its_field() -> None:
    answer: JsonValue = {"partition": "orders-0", "topic_id": "x"}

    with pytest.raises(
        TierError,
        check=coded(TierErrorCode.CONTROL),
        match=r"the daemon's answer to delete-partition .*: at_once: Field required",
    ):
        DELETE_PARTITION.parse_answer(answer)


def test_compact_answer_is_parsed_as_a_plan_or_as_a_started_run() -> None:
    assert COMPACT.parse_answer({"planned": [], "skipped": []}) == CompactionPlan(planned=(), skipped=())
    assert COMPACT.parse_answer({"run_id": "r"}) == RunBegun(run_id="r")
    assert COMPACT.parse_answer({"run_id": None}) == RunBegun(run_id=None)


def test_status_is_unchanged_by_encoding_and_parsing() -> None:
    report = RunReport(
        run_id="r", trigger="schedule", attempt=1, began_ms=1, ended_ms=2, outcome=RunOutcome.PARTLY, problems=("torn",)
    )
    running: dict[str, JsonValue] = {
        "run_id": "s",
        "trigger": "command",
        "began_ms": 3,
        "stage": "rewriting",
        "done": 1,
        "total": 4,
        **asdict(RunTally(groups_replaced=1, bytes_before=7)),
    }
    partition = PartitionStatus(
        partition=ORDERS,
        topic_id=ID_TEXT,
        directory="/kafka/orders-0",
        role="leader",
        leader_epoch=3,
        copied_through=None,
        high_watermark=9,
        log_start_offset=0,
        local_log_start_offset=None,
        state="quarantined",
        reason="",
        last_error="torn",
        remedy="run tierd inspect",
        retry_at_ms=5,
        lag=CopyLag(segments=2, bytes=10, oldest_ms=1),
    )
    snapshot = StatusSnapshot(
        version="1",
        pid=7,
        cluster_id="c",
        node_id=1,
        started_ms=1,
        now_ms=2,
        not_ready=("stopping",),
        partitions=(partition,),
        log_dirs=(LogDirState(Path("/kafka"), "unmounted", (("lost+found", "no partition"),)),),
        hold={"segments": 1, "log_dirs": [{"path": "/kafka", "mode": "link", "reason": ""}]},
        metadata={"partitions": 1},
        leadership={"source": "kafka"},
        pipeline={"enabled": True, "running": running, "last_run": report_json(report), "next_begin_ms": None},
        own_logs={"cleaner": {"rounds": 1}, "uncleanable": {"own-0": "torn"}},
        descriptors={"open": 1, "limit": 2, "near_limit": False, "http_connections": 0},
        outages=(Outage(service="kafka", since_ms=1, problem="refused"),),
    ).to_json()

    answer = StatusAnswer.model_validate(snapshot)

    assert json.dumps(STATUS.encode_answer(answer)) == json.dumps(snapshot), "also in the order of its fields"
    assert STATUS.parse_answer(STATUS.encode_answer(answer)) == answer


def test_status_keeps_fields_of_a_newer_daemon_and_adds_none_to_an_older_one() -> None:
    given: dict[str, JsonValue] = {
        "version": "9",
        "pid": 7,
        "not_ready": [],
        "own_logs": {"uncleanable": {}, "bytes": 3},
        "partitions": [],
        "moon": {"phase": "full"},
    }

    answer = STATUS.parse_answer(given)

    assert answer.to_json() == given
    assert list(answer.to_json()) == list(given)
    assert TypeAdapter(StatusAnswer).validate_python(given).pipeline is None
