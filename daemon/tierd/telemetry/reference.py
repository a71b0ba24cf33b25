"""Generator of ``docs/metrics.md`` from the declarations: ``python -m tierd.telemetry.reference``."""

import sys
from pathlib import Path

from tierd.telemetry.metrics import DECLARATIONS

_HEAD = """\
# Metrics

`GET /metrics` on `http.listen`, in Prometheus' text format. This page is generated from the declarations by
`make docs`; alerts over these names are in [operations.md](operations.md).

Names are Kafka's in snake case with `tierd_` before them; the unit comes last. Lags, ages and sizes are computed at
each scrape, so that they stay right while everything stalls. Series of a partition vanish with it. Beside these are
`process_*` (CPU, memory, open files).

| metric | kind | labels | what it says |
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
