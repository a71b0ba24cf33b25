"""``python -m tests.house``: print every place in the package that breaks a house rule; exit code 1 if there is one."""

import sys
from pathlib import Path

from tests.house.exceptions import EXCEPTIONS
from tests.house.rules import broken_rules
from tests.house.tree import read_modules

PACKAGE = Path("daemon/tierd")


def main() -> int:
    """Check the package, print what breaks a rule, and return the exit code."""
    findings, unneeded = broken_rules(read_modules(PACKAGE), EXCEPTIONS)
    for finding in findings:
        print(finding)
    for exception in unneeded:
        print(f"tests/house/exceptions.py: {exception} allows nothing any more: remove it")
    return 1 if findings or unneeded else 0


if __name__ == "__main__":
    sys.exit(main())
