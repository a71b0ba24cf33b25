"""Findings about configuration, services, permissions, versions, limits, clock and log: urgency, cause and command."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.doctor.doctor_facts import CONFIG, FILES, HOST, KAFKA, LOG, PROCESS, STATE_DIR, facts, partition, status
from tierd.cli.doctor.facts import (
    CheckedStep,
    CheckFacts,
    ConfigFacts,
    DaemonFacts,
    DaemonLogFacts,
    DoctorFinding,
    Facts,
    FileFacts,
    LogEvent,
    ProbeFailure,
    Urgency,
)
from tierd.cli.doctor.host_rules import host_findings

NOW, SOON, NOTE = Urgency.NOW, Urgency.SOON, Urgency.NOTE
OUTAGE = {"service": "object_store", "since_ms": 1, "problem": "refused"}


def only(found: Facts) -> DoctorFinding:
    (finding,) = host_findings(found)
    return finding


def checked(*steps: CheckedStep, config: ConfigFacts | None = None, problem: str = "") -> CheckFacts:
    return CheckFacts(config=config or ConfigFacts(), steps=steps, problem=problem)


def test_sound_host_has_no_finding() -> None:
    steps = [CheckedStep("object store", "put", "ok", "fine")]

    assert list(host_findings(facts(check=checked(*steps)))) == []


class TestConfiguration:
    """The file, and what it names."""

    def test_each_fault_is_a_finding_with_its_place(self) -> None:
        faults = ("t.yaml:3:1: unknown key nonsense", "t.yaml:9:1: node_id: too large")

        found = list(host_findings(facts(check=checked(config=ConfigFacts(faults=faults)))))

        assert [(each.urgency, each.problem) for each in found] == [(SOON, faults[0]), (SOON, faults[1])]
        assert found[0].command == "tierd check-config"

    def test_credentials_of_the_unit_that_the_shell_lacks_are_a_note(self) -> None:
        fault = "t.yaml:3:1: key: $CREDENTIALS_DIRECTORY is not set: run under systemd with LoadCredential=a:/path"

        finding = only(facts(check=checked(config=ConfigFacts(faults=(fault, fault))), unit="tierd-2"))

        assert finding.urgency is NOTE
        assert finding.command == "sudo env CREDENTIALS_DIRECTORY=/run/credentials/tierd-2.service tierd doctor"

    def test_warnings_are_notes(self) -> None:
        warning = ("topics.defaults.retention", "from-broker", "write what the tier shall keep")

        finding = only(facts(check=checked(config=ConfigFacts(warnings=(warning,)))))

        assert (finding.urgency, finding.remedy) == (NOTE, warning[2])

    @pytest.mark.parametrize(
        ("area", "urgency"),
        [
            *(("log dirs", NOW), ("disks", NOW), ("Kafka", NOW), ("metadata store", NOW), ("object store", NOW)),
            *(("pipeline", SOON), ("read endpoint", SOON), ("push replication", SOON)),
        ],
    )
    def test_failed_step_is_as_urgent_as_its_service(self, area: str, urgency: Urgency) -> None:
        step = CheckedStep(area, "reach", "unreachable", "refused", "check the network")

        finding = only(facts(check=checked(step)))

        assert finding == DoctorFinding(
            urgency, area, "reach: refused", "check the network", "tierd check-config --online"
        )

    def test_failed_step_of_a_service_with_an_outage_is_left_to_the_outage(self) -> None:
        steps = (CheckedStep("object store", "reach", "unreachable"), CheckedStep("Kafka", "a:1", "failed", "denied"))

        assert only(facts(check=checked(*steps), status=status(outages=[OUTAGE]))).area == "Kafka"

    def test_step_that_did_not_end_is_named_beside_the_check(self) -> None:
        check = checked(CheckedStep("log dirs", "/data", "begun"), problem="it took longer than 30 s")

        step, whole = host_findings(facts(check=check))

        assert (step.urgency, step.problem) == (NOW, "/data: did not end")
        assert whole.problem == "the check did not come to its end: it took longer than 30 s"

    def test_command_names_the_file_that_was_examined(self) -> None:
        check = checked(config=ConfigFacts(faults=("x",)))

        finding = only(facts(check=check, config_file=Path("/srv/my tierd.yaml"), files=FILES[1:]))

        assert finding.command == "tierd check-config --config '/srv/my tierd.yaml'"


class TestPermissions:
    """Owners and modes of the files."""

    @pytest.mark.parametrize(
        ("file", "urgency", "problem", "command"),
        [
            (FileFacts(CONFIG, "file", 0, 0o664), SOON, "others than its owner decide", f"chmod go-w {CONFIG}"),
            (FileFacts(STATE_DIR, "directory", KAFKA, 0o755), SOON, "mode 0755", f"chmod 700 {STATE_DIR}"),
            (FileFacts(STATE_DIR, "file", KAFKA, 0o600), NOW, "is no directory", f"ls -ld {STATE_DIR}"),
        ],
    )
    def test_file_with_wrong_rights_is_a_finding(
        self, file: FileFacts, urgency: Urgency, problem: str, command: str
    ) -> None:
        others = tuple(each for each in FILES if each.path != file.path)

        finding = only(facts(files=(*others, file)))

        assert (finding.urgency, finding.area, finding.command) == (urgency, "permissions", command)
        assert problem in finding.problem

    def test_entry_of_another_user_keeps_the_daemon_from_its_start(self) -> None:
        entries = (FileFacts(STATE_DIR / "lock", "file", 1000, 0o600), FileFacts(STATE_DIR / "hold", "directory", 0, 0))

        finding = only(facts(files=(*FILES, *entries)))

        assert (finding.urgency, finding.command) == (NOW, f"ls -ld {STATE_DIR}/lock")

    @pytest.mark.parametrize(("mode", "secrets", "count"), [(0o644, ("a.b",), 1), (0o640, ("a.b",), 0), (0o644, (), 0)])
    def test_file_with_secrets_in_it_is_closed_to_other_users(
        self, mode: int, secrets: tuple[str, ...], count: int
    ) -> None:
        config = ConfigFacts(secrets_in_file=secrets)

        found = list(host_findings(facts(check=checked(config=config), files=(FileFacts(CONFIG, "file", 0, mode),))))

        assert [each.command for each in found] == [f"chmod o-rwx {CONFIG}"] * count

    def test_command_of_another_user_than_the_daemons_is_told_so(self) -> None:
        finding = only(facts(host=replace(HOST, uid=0)))

        assert (finding.urgency, finding.command) == (NOTE, f"sudo -u \\#{KAFKA} tierd doctor")


class TestVersionsLimitsClock:
    """The command and the host."""

    @pytest.mark.parametrize("changes", [{"version": "1.2.2"}, {"commit": "b" * 40}])
    def test_daemon_of_another_build_is_a_finding(self, changes: dict[str, str]) -> None:
        finding = only(facts(status=status(**changes)))

        assert (finding.urgency, finding.area, finding.command) == (SOON, "versions", "systemctl restart tierd")

    @pytest.mark.parametrize("commit", ["", "unknown"])
    def test_commit_that_is_not_known_is_no_difference(self, commit: str) -> None:
        assert list(host_findings(facts(status=status(commit=commit)))) == []

    def test_few_descriptors_are_a_finding(self) -> None:
        finding = only(facts(process=replace(PROCESS, open_files_limit=1024)))

        assert (finding.area, finding.command) == ("limits", "systemctl edit tierd")

    def test_partitions_near_the_limit_of_watches_are_a_finding(self) -> None:
        many = status(*(partition(f"orders-{n}") for n in range(9)))

        finding = only(facts(host=replace(HOST, inotify_watches=10), status=many))

        assert finding.command == "sysctl fs.inotify.max_user_watches=65536"
        assert list(host_findings(facts(host=replace(HOST, inotify_watches=12), status=many))) == []

    @pytest.mark.parametrize(("synchronised", "count"), [(True, 0), (None, 0), (False, 1)])
    def test_clock_is_a_note_if_the_kernel_says_that_it_is_wrong(
        self, *, synchronised: bool | None, count: int
    ) -> None:
        found = list(host_findings(facts(host=replace(HOST, clock_synchronised=synchronised))))

        assert [each.command for each in found] == ["timedatectl"] * count


class TestLog:
    """The log of the last hour."""

    def test_errors_are_counted_by_event_with_the_last_one(self) -> None:
        events = (
            LogEvent("error", "copy_failed", "2026-11-21T22:00:00Z", "orders-0; denied"),
            LogEvent("error", "copy_failed", "2026-11-21T22:10:00Z", "orders-1; denied"),
            LogEvent("warning", "copy_retried", "2026-11-21T22:11:00Z"),
        )

        error, warning = host_findings(facts(log=replace(LOG, events=events)))

        assert error.problem == (
            "copy_failed, 2 times in the last hour; the last at 2026-11-21T22:10:00Z: orders-1; denied"
        )
        assert (error.urgency, warning.urgency) == (SOON, NOTE)
        assert error.command == "journalctl -u tierd -o cat --since -1h"
        assert warning.problem.endswith("the last at 2026-11-21T22:11:00Z")

    def test_events_are_at_most_five_of_each_level(self) -> None:
        events = tuple(LogEvent("error", f"event_{n}", "2026-11-21T22:00:00Z") for n in range(9))

        assert len(list(host_findings(facts(log=replace(LOG, events=events))))) == 5

    def test_ends_of_the_process_are_a_finding_of_a_daemon_that_runs_again(self) -> None:
        log = DaemonLogFacts(source="j", exits=("killed", "tierd.service: Failed with result 'oom-kill'."))

        assert "ended 2 times" in only(facts(log=log)).problem
        assert list(host_findings(facts(log=log, daemon=DaemonFacts()))) == []


class TestFailedProbes:
    """Probes without a result."""

    @pytest.mark.parametrize(
        ("probe", "area"),
        [("check", "configuration"), ("files", "permissions"), ("process", "limits"), ("host", "versions")],
    )
    def test_probe_that_failed_is_a_finding(self, probe: str, area: str) -> None:
        finding = only(facts(**{probe: ProbeFailure("no answer within 10 s", "look for a hung disk")}))

        assert (finding.urgency, finding.area) == (SOON, area)
        assert finding.problem == "could not be examined: no answer within 10 s"
        assert finding.command

    def test_log_that_cannot_be_read_is_a_note(self) -> None:
        finding = only(facts(log=ProbeFailure("journalctl is not installed", "name the file")))

        assert (finding.urgency, finding.command) == (NOTE, "tierd doctor --log FILE")
