"""Commands that docs/restore.md prints, for scenarios that run them as written."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "restore.md"


def printed_commands(heading: str, replaced: Mapping[str, str]) -> list[list[str]]:
    """Return the arguments of the commands in a section of the page, in their order.

    Args:
        heading: of the section.
        replaced: arguments of the page that have another value here, such as paths and addresses.
    """
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## )", _PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {heading}"
    blocks = re.findall(r"^```bash\n(.*?)^```", section[1], flags=re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert all(words[0] == "tierd" for words in lines), lines
    return [[replaced.get(word, word) for word in words[1:]] for words in lines]
