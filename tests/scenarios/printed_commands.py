"""Commands of a page in docs/, run in a shell as they are printed."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.scenarios.command import TIERD

_DEADLINE_S: Final = 240


def printed_commands(page: Path, heading: str) -> str:
    """Return the shell blocks of the section with this heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {heading}"
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", section[1], flags=re.MULTILINE | re.DOTALL)
    return "\n".join(blocks)


def run_commands(script: str) -> str:
    """Run a script to its end, and return what it printed. It ends with its first command that fails."""
    path = f"{TIERD.parent}:{os.environ['PATH']}:/usr/sbin"
    ended = subprocess.run(
        ["bash", "-m", "-e", "-c", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
