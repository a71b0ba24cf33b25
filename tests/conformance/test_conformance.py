import pytest

from tests.conformance.marks import ROOT, covered_lines
from tests.conformance.report import catalogue, not_applicable, render, specs

COVERED = covered_lines()


@pytest.mark.parametrize("spec", specs())
def test_every_numbered_line_has_a_test_or_a_reason(spec: str) -> None:
    reasons = not_applicable()
    assert [line.mark for line in catalogue(spec) if line.mark not in COVERED and line.mark not in reasons] == []


@pytest.mark.parametrize("spec", specs())
def test_every_mark_names_a_line_that_exists(spec: str) -> None:
    known = {line.mark for line in catalogue(spec)}
    assert [mark for mark in [*COVERED, *not_applicable()] if mark.startswith(spec + " ") and mark not in known] == []


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "conformance.md").read_text() == render(COVERED), "run make docs"
