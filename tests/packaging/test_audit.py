"""Verdicts of the audit: what fails CI, and what is only told."""

from datetime import date
from typing import Any

import pytest

from tests.packaging.audit import ACCEPTED, accepted_in, told

TODAY = date(2026, 11, 28)
ENTRY = """
[[accepted]]
id = "CVE-1"
package = "a"
reason = "that part is not used"
decided = 2026-11-01
until = 2026-12-01
"""


def report(*found: str, skipped: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a report of pip-audit on the packages a, with the vulnerabilities ``found``, and b."""
    vulnerable = [{"id": name, "aliases": ["CVE-1"] if name == "PYSEC-1" else [], "fix_versions": []} for name in found]
    answers: list[dict[str, Any]] = [
        {"name": "a", "version": "1", "vulns": vulnerable},
        {"name": "b", "version": "2", "vulns": []},
    ]
    return {
        "dependencies": [
            {"name": each["name"], "skip_reason": "?"} if each["name"] in skipped else each for each in answers
        ]
    }


def verdict(given: dict[str, Any], accepted: str = "", today: date = TODAY) -> tuple[list[str], bool]:
    return told(given, accepted_in(accepted), today=today)


def test_vulnerability_that_nobody_accepted_fails() -> None:
    lines, failed = verdict(report("PYSEC-1"))

    assert failed
    assert lines[0] == "vulnerable: a 1: PYSEC-1, mended in no version yet"
    assert lines[-1] == "2 of 2 packages audited, 1 known vulnerabilities, 1 to decide"


def test_vulnerability_of_two_locks_is_told_once_with_its_remedy() -> None:
    twice = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "aliases": [], "fix_versions": ["2", "3"]}]}

    lines, _ = verdict({"dependencies": [twice, twice]})

    assert lines[:-1] == ["vulnerable: a 1: PYSEC-1, mended in 2, 3"]


def test_accepted_vulnerability_is_told_with_its_reason_and_fails_nothing() -> None:
    lines, failed = verdict(report("PYSEC-1"), ENTRY)

    assert not failed
    assert lines[0] == "accepted: CVE-1 of a, that part is not used"


def test_acceptance_ends_on_its_day() -> None:
    assert not verdict(report("PYSEC-1"), ENTRY, date(2026, 11, 30))[1]
    lines, failed = verdict(report("PYSEC-1"), ENTRY, date(2026, 12, 1))

    assert failed
    assert lines[:2] == [
        "accepted until 2026-12-01: CVE-1 of a; decide again",
        "vulnerable: a 1: PYSEC-1, mended in no version yet",
    ]


@pytest.mark.parametrize("found", [(), ("PYSEC-2",)])
def test_acceptance_without_its_vulnerability_fails(found: tuple[str, ...]) -> None:
    lines, failed = verdict(report(*found), ENTRY)

    assert failed
    assert lines[0] == "accepted, but not found any more: CVE-1 of a; remove the entry"


def test_acceptance_of_another_package_covers_nothing() -> None:
    lines, failed = verdict(report("PYSEC-1"), ENTRY.replace('"a"', '"b"'))

    assert failed
    assert "vulnerable: a 1: PYSEC-1, mended in no version yet" in lines


def test_package_without_an_answer_is_named_and_fails_nothing() -> None:
    lines, failed = verdict(report(skipped=("a",)), ENTRY)

    assert not failed
    assert "skipped, the advisory database has no answer for: a" in lines


def test_audit_without_any_answer_says_that_it_was_skipped() -> None:
    assert verdict(report(skipped=("a", "b"))) == (
        ["audit skipped: the advisory database has no answer for any of 2 packages"],
        False,
    )


@pytest.mark.parametrize(
    "change",
    [
        ("that part is not used", " "),
        ("until = 2026-12-01", "until = 2026-11-01"),
        ("until = 2026-12-01", ""),
        ('reason = "that part is not used"', ""),
        ("package", "packages"),
    ],
)
def test_acceptance_needs_a_reason_and_an_end(change: tuple[str, str]) -> None:
    with pytest.raises((TypeError, ValueError)):
        accepted_in(ENTRY.replace(*change))


def test_file_of_the_project_is_valid() -> None:
    assert all(entry.package for entry in accepted_in(ACCEPTED.read_text()))
