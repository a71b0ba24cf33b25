"""``python -m tests.house``: print every place that breaks a house rule; exit code 1 if there is one.

All rules concern the package; that of docstring openings concerns the tests too.
"""

import sys
from pathlib import Path

from tests.house.exceptions import EXCEPTIONS
from tests.house.rules import broken_rules, refused_opening
from tests.house.tree import read_modules

PACKAGE = Path("daemon/tierd")
TESTS = Path("tests")


def main() -> int:
    """Check package and tests, print what breaks a rule, and return the exit code."""
    findings, unneeded = broken_rules(read_modules(PACKAGE), EXCEPTIONS)
    findings += refused_opening(read_modules(TESTS))
    for finding in findings:
        print(finding)
    for exception in unneeded:
        print(f"tests/house/exceptions.py: {exception} allows nothing any more: remove it")
    return 1 if findings or unneeded else 0


if __name__ == "__main__":
    sys.exit(main())
