"""Output that a page prints below a command, compared with the output of the command."""

import re
from collections.abc import Sequence
from typing import Final

from tests.transcripts.pages.placeholders import masked

_ANY_LINES: Final = ("...", "…")


def difference(shown: Sequence[str], printed: Sequence[str]) -> str:
    """Return how the output differs from what the page shows, empty if it does not.

    Args:
        shown: lines of the page. ``...`` or ``…`` alone stands for any number of lines, ``…`` in a line for any text.
        printed: lines of the output, with placeholders.
    """
    at, may_skip = 0, False
    for line in shown:
        if line.strip() in _ANY_LINES:
            may_skip = True
            continue
        pattern = re.compile(".*".join(map(re.escape, masked(line).split("…"))))
        ends = len(printed) if may_skip else at + 1
        found = next((n for n in range(at, min(ends, len(printed))) if pattern.fullmatch(printed[n])), None)
        if found is None:
            there = "\n".join(printed[at : at + (40 if may_skip else 1)]) or "the end of the output"
            return f"the page shows\n{masked(line)}\nwhere the command prints\n{there}"
        at, may_skip = found + 1, False
    if at < len(printed) and not may_skip:
        return f"the page does not show\n{printed[at]}"
    return ""
