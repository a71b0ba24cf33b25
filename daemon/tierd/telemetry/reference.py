"""Generator of ``docs/metrics.md`` from the declarations: ``python -m tierd.telemetry.reference``."""

import sys
from pathlib import Path

from tierd.telemetry.metrics import DECLARATIONS

_HEAD = """\
# Metrics

`GET /metrics` on `http.listen` answers in Prometheus' text format. `make docs` generates this page from the
declarations. [operations.md](operations.md) has alerts over these metrics.

The names are Kafka's names in snake case with the prefix `tierd_`; the unit comes last. tierd computes lags, ages and
sizes at each scrape, so they are right while all work stalls. The series of a partition end when the broker loses
it. There are also `process_*` metrics (CPU, memory, open files). The metrics `tierd_restore_*` are not of the daemon:
`tierd restore store --metrics-file FILE` writes them ([state stores](state-stores.md)).

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def render_markdown() -> str:
    """Return the text of ``docs/metrics.md``."""
    rows = (
        f"| `{d.name}` | {d.kind.value} | {', '.join(f'`{label}`' for label in d.labels)} | {d.help} |"
        for d in sorted(DECLARATIONS, key=lambda declaration: declaration.name)
    )
    return _HEAD + "\n".join(rows) + "\n"


def main(root: Path) -> None:
    """Write the page below ``root``, the root of the repository."""
    (root / "docs" / "metrics.md").write_text(render_markdown())


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["."]))
