"""docs/push.md: two daemons, a comparison and a restore by the commands that the page prints, and its examples."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "push.md"


def examples() -> Iterator[str]:
    """Yield the configurations that the page prints."""
    blocks = re.findall(r"^( *)```yaml\n(.*?)^ *```", _PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from (text for each in blocks if "push:" in (text := textwrap.dedent(each[1])))
