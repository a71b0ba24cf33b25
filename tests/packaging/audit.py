"""Search for known vulnerabilities in the packages of a production install: ``python -m tests.packaging.audit``.

The exit code is 1 for a vulnerability. A package without an answer of the advisory database is named as skipped, and so
is the whole audit if the database is unreachable: neither is a failure.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
_DEADLINE_S: Final = 180


def judged(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the vulnerabilities of a report of pip-audit, a line each, and the packages without an answer."""
    found: list[str] = []
    skipped: list[str] = []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped.append(package["name"])
        for each in package.get("vulns", []):
            mended = ", ".join(each["fix_versions"]) or "no version yet"
            found.append(f"{package['name']} {package['version']}: {each['id']}, mended in {mended}")
    return sorted(set(found)), sorted(set(skipped))


def told(found: Sequence[str], skipped: Sequence[str], *, asked: int) -> list[str]:
    """Return the lines of an audit of ``asked`` packages."""
    lines = [f"vulnerable: {line}" for line in found]
    if skipped:
        lines.append(f"skipped, the advisory database has no answer for: {', '.join(skipped)}")
    return [*lines, f"{asked - len(skipped)} of {asked} packages audited, {len(found)} known vulnerabilities"]


def main() -> int:
    """Audit every lock; return the exit code."""
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    files = [argument for lock in locks for argument in ("--requirement", str(lock))]
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--timeout", "10"]
    try:
        ended = subprocess.run(
            [*command, "--progress-spinner", "off", "--format", "json", *files],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_S,
        )
        report = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        print("audit skipped: the advisory database is out of reach")
        return 0
    found, skipped = judged(report)
    asked = len({package["name"] for package in report["dependencies"]})
    print("\n".join(told(found, skipped, asked=asked)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
