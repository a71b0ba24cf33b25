"""Search for known vulnerabilities in the packages of a production install: ``python -m tests.packaging.audit``.

The exit code is 1 for a vulnerability that ``requirements/accepted-vulnerabilities.toml`` does not accept, and for an
entry there that is out of date. A package without an answer of the advisory database is named as skipped, and so is the
whole audit if the database is unreachable: neither is a failure.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ACCEPTED: Final = ROOT / "requirements" / "accepted-vulnerabilities.toml"
_DEADLINE_S: Final = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Vulnerability:
    """Known vulnerability of a locked package.

    Attributes:
        names: its identifier and the aliases of other databases.
        mended: versions without it, as text.
    """

    package: str
    version: str
    names: tuple[str, ...]
    mended: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}: {self.names[0]}, mended in {self.mended}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Reviewed decision to ship a package with a known vulnerability.

    Attributes:
        reason: what makes it harmless here.
        until: first day on which it fails the audit again.
    """

    id: str
    package: str
    reason: str
    decided: date
    until: date

    def covers(self, found: Vulnerability) -> bool:
        """Say whether the decision is about ``found``."""
        return self.package == found.package and self.id in found.names


def accepted_in(text: str) -> list[Acceptance]:
    """Return the decisions of a file.

    Raises:
        TypeError: an entry lacks a field, or has one that is not known.
        ValueError: no TOML, or an entry that has no reason or ends before it begins.
    """
    entries = [Acceptance(**entry) for entry in tomllib.loads(text).get("accepted", [])]
    for entry in entries:
        if not entry.reason.strip() or entry.until <= entry.decided:
            raise ValueError(f"{entry.id}: an acceptance needs a reason, and an end after its begin")
    return entries


def vulnerabilities(report: dict[str, Any]) -> list[Vulnerability]:
    """Return the vulnerabilities of a report of pip-audit, each once, by package."""
    found = {
        Vulnerability(
            package=package["name"],
            version=package["version"],
            names=(each["id"], *each.get("aliases", [])),
            mended=", ".join(each["fix_versions"]) or "no version yet",
        )
        for package in report["dependencies"]
        for each in package.get("vulns", [])
    }
    return sorted(found, key=lambda each: (each.package, each.names))


def unanswered(report: dict[str, Any]) -> set[str]:
    """Return the packages of a report for which the advisory database had no answer."""
    return {package["name"] for package in report["dependencies"] if "skip_reason" in package}


def failures(
    found: Iterable[Vulnerability], accepted: Sequence[Acceptance], *, unanswered: set[str], today: date
) -> Iterator[str]:
    """Yield a line for each vulnerability that is not accepted, and for each acceptance that is out of date."""
    remaining = list(found)
    for entry in accepted:
        covered = [each for each in remaining if entry.covers(each)]
        if not covered and entry.package not in unanswered:
            yield f"accepted, but not found any more: {entry.id} of {entry.package}; remove the entry"
        elif entry.until <= today:
            yield f"accepted until {entry.until}: {entry.id} of {entry.package}; decide again"
        else:
            remaining = [each for each in remaining if each not in covered]
    yield from (f"vulnerable: {each}" for each in remaining)


def told(report: dict[str, Any], accepted: Sequence[Acceptance], *, today: date) -> tuple[list[str], bool]:
    """Return the lines of an audit, and whether it failed."""
    asked = {package["name"] for package in report["dependencies"]}
    skipped = unanswered(report)
    if asked == skipped:
        return [f"audit skipped: the advisory database has no answer for any of {len(asked)} packages"], False
    found = vulnerabilities(report)
    failed = list(failures(found, accepted, unanswered=skipped, today=today))
    in_force = [entry for entry in accepted if not any(f"{entry.id} of {entry.package};" in line for line in failed)]
    lines = [*failed, *(f"accepted: {entry.id} of {entry.package}, {entry.reason}" for entry in in_force)]
    if skipped:
        lines.append(f"skipped, the advisory database has no answer for: {', '.join(sorted(skipped))}")
    audited = f"{len(asked - skipped)} of {len(asked)} packages audited"
    return [*lines, f"{audited}, {len(found)} known vulnerabilities, {len(failed)} to decide"], bool(failed)


def main() -> int:
    """Audit every lock; return the exit code."""
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    files = [argument for lock in locks for argument in ("--requirement", str(lock))]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--timeout", "10"]
    accepted = accepted_in(ACCEPTED.read_text())
    try:
        ended = subprocess.run(
            [*command, "--progress-spinner", "off", "--format", "json", *files],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
        report = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        print(f"audit skipped: the advisory database did not answer within {_DEADLINE_S} s")
        return 0
    except json.JSONDecodeError:
        reason = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        print(f"audit skipped: the advisory database is out of reach: {reason}")
        return 0
    lines, failed = told(report, accepted, today=datetime.now(UTC).date())
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
