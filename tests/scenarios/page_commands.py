"""Commands that a page of the documentation prints, run as they are written."""

import os
import re
import subprocess
from pathlib import Path

from tests.scenarios.command import TIERD

_DEADLINE_S = 240


def commands_of(page: Path, heading: str) -> str:
    """Return the commands in a section of a page, as one script."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {heading}"
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", section[1], flags=re.MULTILINE | re.DOTALL)
    return "\n".join(blocks)


def run_page(script: str) -> str:
    """Run a script with job control, and return its output; each command has to succeed."""
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
