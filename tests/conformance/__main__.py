"""Write ``docs/conformance.md``: ``python -m tests.conformance``."""

from tests.conformance.marks import ROOT, covered_lines
from tests.conformance.report import render

(ROOT / "docs" / "conformance.md").write_text(render(covered_lines()))
