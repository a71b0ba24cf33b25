from pathlib import Path

from tierd.telemetry.metrics import DECLARATIONS
from tierd.telemetry.reference import main, render_markdown

ROOT = Path(__file__).parents[2]


def test_page_in_the_repository_agrees_with_the_declarations() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == render_markdown(), "docs/metrics.md is stale: run make docs"


def test_page_lists_every_declared_metric(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    main(tmp_path)
    page = (tmp_path / "docs/metrics.md").read_text()

    assert all(f"`{declaration.name}`" in page for declaration in DECLARATIONS)
