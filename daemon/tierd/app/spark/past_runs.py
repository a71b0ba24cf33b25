"""``tierd compact --history``: the reports of past runs, which need nothing of a run."""

from pathlib import Path

from pydantic import JsonValue

from tierd.pipeline import RunHistory, report_json


def past_runs(state_dir: Path) -> list[JsonValue]:
    """Return the reports of past runs, the oldest first. Blocking.

    Raises:
        StateDirError: the history cannot be read.
    """
    return [report_json(report) for report in RunHistory(state_dir).read()]
