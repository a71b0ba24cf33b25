"""Push replication in words."""

from tierd.serve import StatusSnapshot, push_lines, push_problems, unprotected_line
from tierd.serve.control_answers import (
    FollowedLeader,
    KeptPartition,
    PushLeaderSummary,
    PushStandbySummary,
    PushSummary,
    SentPartition,
    StandbyOfPartition,
    TailSummary,
    UnprotectedSummary,
)
from tierd.serve.page.overview import render_overview
from tierd.serve.page.page_query import ListQuery


def sent(number: int, *standbys: StandbyOfPartition, problem: str = "") -> SentPartition:
    return SentPartition(partition=f"orders-{number}", standbys=standbys, problem=problem)


PUSHED = StandbyOfPartition(node_id=2, mode="push", lag_bytes=10, lag_ms=1)
FETCHING = StandbyOfPartition(
    node_id=3, mode="pull", lag_records=5, lag_bytes=50, lag_ms=900, why_not_pushed="it lags too far"
)


def test_host_without_push_says_nothing() -> None:
    assert push_lines(PushSummary()) == []
    assert push_problems(PushSummary()) == []
    assert unprotected_line(UnprotectedSummary()) == ""


def test_line_of_a_leader_has_nodes_sessions_and_lag() -> None:
    push = PushSummary(enabled=True, leader=PushLeaderSummary(partitions=(sent(0, PUSHED, FETCHING), sent(1, PUSHED))))
    assert push_lines(push) == [
        "push: 2 partitions to nodes 2, 3, 2 of 3 copies in sessions, largest lag 900 ms, 70 bytes in all"
    ]
    assert push_problems(push) == [
        "push: orders-0 to node 3 has no session: it lags too far; 5 records, 50 bytes, 900 ms behind"
    ]


def test_push_that_is_switched_off_is_named() -> None:
    push = PushSummary(enabled=False, leader=PushLeaderSummary())
    assert push_lines(push) == ["push: switched off (push.enabled); standbys fetch"]


def test_problems_of_reading_come_before_lags() -> None:
    tail = TailSummary(watch_problem="no watches left", log_dir_problems={"/data": "the disk is away"})
    leader = PushLeaderSummary(tail=tail, partitions=(sent(0, FETCHING), sent(1, problem="no such directory")))
    assert [line[:40] for line in push_problems(PushSummary(enabled=True, leader=leader))] == [
        "push: no watches left",
        "push: the disk is away",
        "push: orders-1 is not sent: no such dire",
        "push: orders-0 to node 3 has no session:",
    ]


def test_standby_names_silent_leaders_and_copies_with_errors() -> None:
    standby = PushStandbySummary(
        ready=True,
        disk_full=True,
        leaders=(FollowedLeader(node_id=1, problem="connection refused"), FollowedLeader(node_id=4)),
        conflicts={"a-0": "two incarnations"},
        partitions=(
            KeptPartition(partition="orders-0", mode="push", online=True, lag_records=2),
            KeptPartition(partition="orders-1", mode="pull", online=True, last_error="torn"),
            KeptPartition(partition="orders-2", mode="pull"),
            KeptPartition(partition="orders-3", mode="pull", online=True, rebuilding=True),
        ),
    )
    push = PushSummary(enabled=True, leader=PushLeaderSummary(), standby=standby)
    assert push_lines(push) == ["standby: 4 copies, 1 in sessions, 2 records behind"]
    assert push_problems(push) == [
        "standby: the disk of the copies is full, and nothing is taken: make room in push.standby.log_dir",
        "standby: node 1 does not answer: connection refused",
        "standby: a-0: two incarnations",
        "standby: orders-1: torn",
        "standby: orders-2: its log cannot be used",
        "standby: orders-3: it is made anew, and has not everything yet",
    ]


def test_copies_that_are_loaded_and_a_bad_certificate() -> None:
    push = PushSummary(
        enabled=True, leader=PushLeaderSummary(), standby=PushStandbySummary(), certificate_problem="expired"
    )
    assert push_lines(push) == ["standby: the copies are being loaded"]
    assert push_problems(push) == ["push: expired"]


def test_number_of_problem_lines_is_bounded() -> None:
    leader = PushLeaderSummary(partitions=tuple(sent(number, FETCHING) for number in range(30)))
    lines = push_problems(PushSummary(enabled=True, leader=leader))
    assert len(lines) == 21
    assert lines[-1] == "10 more problems: tierd status --json"


def test_cost_of_a_loss_names_size_age_and_partition() -> None:
    line = unprotected_line(UnprotectedSummary(bytes=3 << 20, seconds=12.34, partition="orders-0"))
    assert line == (
        "not protected: 3.0 MiB are neither in the tier nor on a standby; the oldest record is 12.3 s old, of orders-0"
    )


def test_page_has_the_lines_of_push_and_the_cost_of_a_loss() -> None:
    leader = PushLeaderSummary(partitions=(sent(0, FETCHING),))
    push = PushSummary(enabled=True, leader=leader)
    cost = UnprotectedSummary(bytes=1 << 20, seconds=2.0, partition="orders-0")
    page = render_overview(
        StatusSnapshot(
            version="1",
            pid=1,
            cluster_id="c",
            node_id=1,
            started_ms=0,
            now_ms=0,
            not_ready=(),
            partitions=(),
            log_dirs=(),
            hold={},
            metadata={},
            push=push.model_dump(mode="json"),
            unprotected=cost.model_dump(mode="json"),
        ),
        None,
        ListQuery(),
    )
    for line in (*push_lines(push), *push_problems(push), unprotected_line(cost)):
        assert line in page
