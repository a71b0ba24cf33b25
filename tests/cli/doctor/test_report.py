"""The page and the JSON of the doctor: order, exit, and what a person reads."""

from dataclasses import replace

import pytest

from tests.cli.doctor.doctor_facts import HOST, facts, partition, status
from tierd.cli.doctor.facts import (
    CheckedStep,
    CheckFacts,
    ConfigFacts,
    DaemonFacts,
    DoctorFinding,
    ProbeFailure,
    Urgency,
    most_urgent_first,
)
from tierd.cli.doctor.report import answer, diagnose, needs_a_person, page_lines

QUARANTINED = partition(state="quarantined", last_error="denied", remedy="grant s3:PutObject")


def finding(urgency: Urgency, area: str) -> DoctorFinding:
    return DoctorFinding(urgency, area, "problem", "remedy", "command")


def test_findings_are_ordered_by_urgency_and_each_is_there_once() -> None:
    note, soon, now = finding(Urgency.NOTE, "a"), finding(Urgency.SOON, "b"), finding(Urgency.NOW, "c")
    later = finding(Urgency.SOON, "a")

    assert most_urgent_first([note, soon, now, soon, later]) == [now, soon, later, note]


@pytest.mark.parametrize(
    ("urgencies", "needed"),
    [([], False), ([Urgency.NOTE], False), ([Urgency.NOTE, Urgency.SOON], True), ([Urgency.NOW], True)],
)
def test_notes_alone_need_no_person(urgencies: list[Urgency], *, needed: bool) -> None:
    assert needs_a_person([finding(each, "a") for each in urgencies]) is needed


def test_sound_installation_has_a_page_of_two_lines() -> None:
    sound = facts()

    assert list(page_lines(sound, diagnose(sound))) == [
        "tierd doctor, 2026-11-21 22:26:40 UTC: 0 now, 0 soon, 0 notes",
        "/etc/tierd/tierd.yaml; tierd 1.2.3, process 7, node 0 of cluster , up for 0 s, 1 partitions",
    ]


def test_page_has_findings_below_their_urgency_with_next_step_and_command() -> None:
    ill = facts(status=status(QUARANTINED, version="1.2.2"), host=replace(HOST, clock_synchronised=False))

    _, _, *lines = page_lines(ill, diagnose(ill))

    assert lines[:6] == [
        "",
        "NOW: records may be lost, or the daemon does not work",
        "- partitions: orders-0 is quarantined: denied",
        "    next: grant s3:PutObject",
        "    run:  tierd sync orders-0",
        "",
    ]
    assert [line for line in lines if line and not line.startswith((" ", "-"))] == [
        "NOW: records may be lost, or the daemon does not work",
        "SOON: work fails, or will fail",
        "NOTES: nothing has to be done",
    ]


def test_every_probe_may_fail_and_there_is_still_a_page() -> None:
    failed = ProbeFailure("no answer within 10 s", "look for a hung disk")
    blind = facts(check=failed, daemon=failed, process=failed, files=failed, host=failed, log=failed)

    lines = list(page_lines(blind, diagnose(blind)))

    assert lines[1] == "/etc/tierd/tierd.yaml; the daemon did not answer"
    assert sum("no answer within 10 s" in line for line in lines) == 6
    assert answer(blind, diagnose(blind))["version"] == ""


def test_json_has_findings_steps_and_counts() -> None:
    step = CheckedStep("Kafka", "a:9092", "failed", "denied", "compare the password")
    ill = facts(check=CheckFacts(config=ConfigFacts(), steps=(step,)))

    told = answer(ill, diagnose(ill), bundle="b.tar.gz")

    assert told == {
        "examined_ms": ill.now_ms,
        "config": "/etc/tierd/tierd.yaml",
        "version": "1.2.3",
        "commit": "a" * 40,
        "daemon_answers": True,
        "ok": False,
        "counts": {"now": 1, "soon": 0, "note": 0},
        "findings": [
            {
                "urgency": "now",
                "area": "Kafka",
                "problem": "a:9092: denied",
                "remedy": "compare the password",
                "command": "tierd check-config --online",
            }
        ],
        "steps": [
            {
                "area": "Kafka",
                "name": "a:9092",
                "outcome": "failed",
                "detail": "denied",
                "next_step": "compare the password",
            }
        ],
        "bundle": "b.tar.gz",
    }


def test_json_of_a_daemon_that_does_not_answer_says_so() -> None:
    silent = facts(daemon=DaemonFacts(failure=ProbeFailure("gone")))

    assert answer(silent, diagnose(silent))["daemon_answers"] is False
