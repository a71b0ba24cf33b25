"""Findings about the daemon and its partitions: urgency, cause and command of each."""

import pytest

from tests.cli.doctor.doctor_facts import KAFKA, LOG, NOW_MS, PROCESS, facts, partition, status
from tierd.cli.doctor.daemon_rules import daemon_findings
from tierd.cli.doctor.facts import DaemonFacts, DoctorFinding, Facts, ProbeFailure, Urgency

NO_SOCKET = DaemonFacts(failure=ProbeFailure("no answer from tierd on control.sock: No such file or directory"))
LATE = DaemonFacts(failure=ProbeFailure("no answer from tierd on control.sock: it took too long", timed_out=True))


def only(found: Facts) -> DoctorFinding:
    (finding,) = daemon_findings(found)
    return finding


def test_sound_daemon_has_no_finding() -> None:
    assert list(daemon_findings(facts())) == []


class TestProcess:
    """A daemon that does not answer."""

    def test_daemon_that_is_stopped_is_to_be_started_and_its_end_is_named(self) -> None:
        log = type(LOG)(source="j", exits=("tierd.service: Main process exited, code=killed, status=9/KILL",))

        finding = only(facts(daemon=NO_SOCKET, process=None, log=log))

        assert (finding.urgency, finding.area) == (Urgency.NOW, "daemon")
        assert finding.problem.startswith("no daemon runs")
        assert finding.problem.endswith("status=9/KILL")
        assert finding.command == "systemctl status tierd"

    @pytest.mark.parametrize(
        ("state", "why", "command"),
        [
            ("T", "it is stopped by a signal", "kill -CONT 7"),
            ("D", "it waits for a disk or a mount", "dmesg --level=err,warn"),
            ("Z", "it has ended", "cat /proc/7/status"),
            ("S", "it took too long", "systemctl restart tierd-2"),
            ("", "it took too long", "systemctl restart tierd-2"),
        ],
    )
    def test_daemon_that_hangs_is_named_with_the_state_of_its_process(self, state: str, why: str, command: str) -> None:
        hung = type(PROCESS)(pid=7, state=state, uid=KAFKA)

        finding = only(facts(daemon=LATE, process=hung, unit="tierd-2"))

        assert finding.urgency is Urgency.NOW
        assert "process 7 holds the state directory and does not answer" in finding.problem
        assert why in finding.problem
        assert finding.command == command

    @pytest.mark.parametrize("process", [None, ProbeFailure("no /proc")])
    def test_daemon_that_hangs_in_another_container_is_not_called_stopped(self, process: ProbeFailure | None) -> None:
        finding = only(facts(daemon=LATE, process=process))

        assert "no daemon runs" not in finding.problem
        assert finding.command == "systemctl restart tierd"

    def test_socket_of_another_user_asks_for_that_user(self) -> None:
        forbidden = DaemonFacts(failure=ProbeFailure("Permission denied"), is_forbidden=True)

        finding = only(facts(daemon=forbidden))

        assert finding.urgency is Urgency.SOON
        assert finding.command == f"sudo -u \\#{KAFKA} tierd doctor"

    def test_file_without_state_dir_asks_for_the_socket(self) -> None:
        finding = only(facts(daemon=ProbeFailure("cannot be read"), state_dir=None, process=None))

        assert finding.problem == "cannot be asked: cannot be read"
        assert finding.command == "tierd doctor --socket FILE"

    def test_file_that_this_user_may_not_read_asks_for_the_user_of_the_daemon(self) -> None:
        hidden = ProbeFailure("/etc/tierd/tierd.yaml: cannot be read: Permission denied", "correct the file")

        finding = only(facts(daemon=hidden, state_dir=None, process=None))

        assert (finding.urgency, finding.command) == (Urgency.SOON, "sudo -u kafka tierd doctor")

    def test_daemon_that_answers_and_is_stuck_is_named_with_its_task(self) -> None:
        finding = only(facts(liveness="stuck: copy orders-0 outlived\nits deadlines\n"))

        assert finding.problem == "the daemon is stuck: stuck: copy orders-0 outlived its deadlines"
        assert finding.urgency is Urgency.NOW


OUTAGE = {"service": "object_store", "since_ms": NOW_MS - 90_000, "problem": "refused", "remedy": "check the network"}


class TestServices:
    """Outages, and causes of not being ready."""

    def test_outage_is_one_finding_with_its_age(self) -> None:
        headline = "object store unreachable since 2026-11-21 22:25:10 UTC: refused"

        finding = only(facts(status=status(outages=[OUTAGE], not_ready=[headline])))

        assert finding == DoctorFinding(
            Urgency.NOW,
            "object store",
            "has not answered the daemon for 90 s: refused",
            "check the network",
            "tierd check-config --online",
        )

    def test_outage_of_a_service_that_this_version_does_not_know_is_shown(self) -> None:
        finding = only(
            facts(status=status(outages=[{"service": "name_server", "since_ms": "long", "problem": "gone"}]))
        )

        assert (finding.area, finding.problem) == ("name server", "has not answered the daemon: gone")

    def test_other_causes_of_not_being_ready_are_findings(self) -> None:
        causes = ["the log dirs have not been scanned completely yet"]

        finding = only(facts(status=status(not_ready=causes)))

        assert finding.problem == f"not ready: {causes[0]}"

    def test_log_dir_that_is_offline_is_to_be_inspected(self) -> None:
        log_dirs = [{"path": "/data one", "problem": "Input/output error"}, {"path": "/data2", "problem": ""}]

        finding = only(facts(status=status(log_dirs=log_dirs)))

        assert finding.command == "tierd inspect '/data one'"
        assert finding.urgency is Urgency.NOW


class TestPartitions:
    """Last errors, lag and pauses."""

    def test_partitions_with_one_error_are_one_finding(self) -> None:
        error = "the store refused: AccessDenied"
        failing = [partition(f"orders-{n}", state="quarantined", last_error=error) for n in range(5)]

        finding = only(facts(status=status(*failing)))

        assert finding.urgency is Urgency.NOW
        assert finding.problem == f"orders-0, orders-1, orders-2 and 2 more are quarantined: {error}"
        assert finding.command == "tierd sync"

    def test_error_that_names_its_partition_is_the_same_error(self) -> None:
        failing = [
            partition(name, state="quarantined", last_error=f"{name}: no space") for name in ("orders-0", "orders-1")
        ]

        assert only(facts(status=status(*failing))).command == "tierd sync orders-0 orders-1"

    @pytest.mark.parametrize(
        ("remedy", "command"),
        [
            ("run tierd inspect /data/a.log; a replica may still have it", "tierd inspect /data/a.log"),
            ("run tierd inspect on the directory", "tierd inspect /data/orders-0"),
            ("run tierd verify --deep orders-0, then restore from another copy", "tierd verify --deep orders-0"),
            ("run tierd verify; the object was cut short or replaced", "tierd verify orders-0"),
            ("run tierd check-config on this host", "tierd check-config --online"),
            ("run tierd as a member of the broker's group", "tierd sync orders-0"),
            ("run tierd verify --deep $(reboot)-0", "tierd verify --deep orders-0"),
            ("", "tierd sync orders-0"),
        ],
    )
    def test_command_is_the_one_of_the_remedy_if_it_only_looks(self, remedy: str, command: str) -> None:
        failing = partition(state="quarantined", last_error="damaged", remedy=remedy)

        finding = only(facts(status=status(failing)))

        assert (finding.command, finding.remedy) == (command, remedy)

    def test_error_of_a_partition_that_still_works_is_less_urgent(self) -> None:
        finding = only(facts(status=status(partition(state="waiting", last_error="slow"))))

        assert finding.urgency is Urgency.SOON

    def test_errors_are_at_most_ten_findings_and_a_count(self) -> None:
        failing = [partition(f"orders-{n}", state="quarantined", last_error=f"error {n}") for n in range(15)]

        *found, last = daemon_findings(facts(status=status(*failing)))

        assert len(found) == 10
        assert last.problem == "5 more errors of partitions"

    def test_oldest_segment_of_six_hours_is_urgent_with_its_reason(self) -> None:
        late = partition("orders-1", state="waiting", reason="an open transaction", lag_seconds=25_200.0)

        finding = only(facts(status=status(partition(lag_seconds=9.0), late)))

        assert finding.urgency is Urgency.NOW
        assert finding.problem.endswith("is 7.0 h old, of orders-1: an open transaction")

    def test_paused_partition_is_to_be_resumed(self) -> None:
        finding = only(facts(status=status(partition(state="paused"))))

        assert finding.command == "tierd resume"
        assert finding.problem == "orders-0 is paused by a person, and copied no more"


class TestHoldsAndLeadership:
    """Segments that the broker may delete, and the leaders of partitions."""

    def test_segments_without_hold_are_urgent(self) -> None:
        hold = {"unheld_segments": 3, "unheld_reason": "hold.max_bytes is reached"}

        finding = only(facts(status=status(hold=hold)))

        assert finding.urgency is Urgency.NOW
        assert "hold.max_bytes is reached" in finding.problem

    def test_holds_that_a_restart_loses_are_a_note(self) -> None:
        finding = only(facts(status=status(hold={"descriptors": 4})))

        assert finding.urgency is Urgency.NOTE

    def test_expired_segments_in_their_grace_are_a_note(self) -> None:
        finding = only(facts(status=status(partition(in_grace_segments=2))))

        assert (finding.urgency, finding.command) == (Urgency.NOTE, "tierd deletions")

    def test_failure_to_hear_of_leaders_is_a_finding_with_its_remedy(self) -> None:
        leadership = {"last_error": "login refused", "remedy": "compare the password", "problems": {"a-0": "no leader"}}

        first, second = daemon_findings(facts(status=status(leadership=leadership)))

        assert (first.area, first.remedy) == ("leadership", "compare the password")
        assert second.problem == "a-0: no leader"

    def test_failure_to_hear_of_leaders_is_left_out_during_an_outage_of_kafka(self) -> None:
        outage = {**OUTAGE, "service": "kafka"}

        finding = only(facts(status=status(outages=[outage], leadership={"last_error": "refused"})))

        assert finding.area == "Kafka"

    def test_partitions_that_another_process_owns_are_a_finding(self) -> None:
        finding = only(facts(status=status(metadata={"fenced_partitions": 2})))

        assert "owns 2 partitions" in finding.problem


@pytest.mark.parametrize(
    ("changes", "area", "command"),
    [
        ({"catalogue": {"problems": {"topics": "denied"}}}, "catalogue", "tierd check-config --online"),
        ({"drills": {"problem": "no room"}}, "drills", "tierd drill --history"),
        ({"endpoint": {"certificate_problem": "ended"}}, "read endpoint", "tierd status"),
        ({"push": {"certificate_problem": "ended", "leader": {}}}, "push replication", "tierd status"),
        ({"control": {"enabled": True, "problem": "refused"}}, "control plane", "tierd peers"),
        ({"own_logs": {"uncleanable": {"a-0": "torn"}}}, "own logs", "tierd status"),
        ({"descriptors": {"open": 9, "limit": 10, "near_limit": True}}, "limits", "systemctl edit tierd"),
        (
            {
                "pipeline": {
                    "enabled": True,
                    "running": None,
                    "next_begin_ms": None,
                    "last_run": {"ended_ms": 1, "outcome": "timed_out"},
                }
            },
            "pipeline",
            "tierd compact --history",
        ),
        (
            {"push": {"leader": {}}, "unprotected": {"bytes": 1, "seconds": 61.0, "partition": "a-0"}},
            "push replication",
            "tierd status",
        ),
    ],
)
def test_trouble_beside_the_copies_is_a_finding(changes: dict[str, object], area: str, command: str) -> None:
    finding = only(facts(status=status(**changes)))

    assert (finding.area, finding.command) == (area, command)
    assert finding.urgency is not Urgency.NOTE
