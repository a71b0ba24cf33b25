"""docs/push.md: a leader and a standby, started by the commands that the page prints."""

import re
from pathlib import Path

from tests.scenarios.page_commands import commands_of, run_page
from tests.services.ports import free_port

_PAGE = Path(__file__).parents[2] / "docs" / "push.md"


def test_commands_of_the_page_keep_a_copy_of_every_record(tmp_path: Path) -> None:
    script = commands_of(_PAGE, "Try it").replace("/tmp/tierd-push", str(tmp_path / "push"))
    port = free_port(1)
    script = script.replace("127.0.0.1:942$node", "127.0.0.1:0")
    script = script.replace("127.0.0.1:943$((3 - node))", f"127.0.0.1:$(({port} + 2 - node))")
    script = script.replace("127.0.0.1:943$node", f"127.0.0.1:$(({port} + node - 1))")

    output = run_page(script)

    assert "push: 1 partitions to nodes 2, 1 of 1 copies in sessions" in output
    assert "standby: 1 copies, 1 in sessions" in output
    assert re.search(r"push replication +node 2 +ok", output)
    assert "40 batches, 0 damaged places" in output
    assert "the same bytes" in output
