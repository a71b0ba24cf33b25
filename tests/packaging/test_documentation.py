import re
from pathlib import Path

import pytest

from tierd import errors
from tierd.cli.failures import exit_code_of
from tierd.cli.main import VERBS
from tierd.errors import TierError, TierErrorCode
from tierd.log import log_errors
from tierd.pipeline import pipeline_errors
from tierd.telemetry.metrics import DECLARATIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
EXPORTED = {name for declaration in DECLARATIONS for name in (declaration.name, f"{declaration.name}_bucket")}


def kinds() -> list[type[TierError]]:
    """Return every error that the project raises on purpose."""
    known = {**vars(errors), **vars(log_errors), **vars(pipeline_errors)}.values()
    classes = [kind for kind in known if isinstance(kind, type) and issubclass(kind, TierError)]
    return [kind for kind in classes if kind is not TierError]


def anchors(page: Path) -> set[str]:
    """Return the valid anchors of links into ``page``, by the rule of GitHub."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_has_its_exit_code_and_remedy_in_operations(kind: type[TierError]) -> None:
    rows = re.findall(
        rf"^\| `{kind.__name__}` \| (\d) \| .+ \| .+ \|$", (DOCS / "operations.md").read_text(), re.MULTILINE
    )

    assert rows == [str(int(exit_code_of(kind.__new__(kind))))]


@pytest.mark.parametrize("code", TierErrorCode)
def test_every_error_code_has_its_class_exit_code_and_remedy_in_operations(code: TierErrorCode) -> None:
    ((name, exit_code),) = re.findall(
        rf"^\| `(\w+)`: `{code}` \| (\d) \| .+ \| .+ \|$", (DOCS / "operations.md").read_text(), re.MULTILINE
    )
    known: list[type[TierError]] = [TierError, *kinds()]
    (kind,) = [kind for kind in known if kind.__name__ == name]

    assert exit_code == str(int(exit_code_of(kind.__new__(kind))))


def test_every_metric_in_the_documentation_exists() -> None:
    for page in PAGES:
        for name in set(re.findall(r"\btierd_[a-z_]+\b(?:\*)?", page.read_text())) - {"tierd_version"}:
            is_known = any(known.startswith(name[:-1]) for known in EXPORTED) if name[-1] == "*" else name in EXPORTED
            assert is_known, f"{page.name}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_decision_is_listed() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()

    for page in (DOCS / "decisions").glob("0*.md"):
        assert f"({page.name})" in index
        assert all(f"**{part}" in page.read_text() for part in ("Context.", "Decision.", "What we gave up."))


def test_the_readme_names_every_command() -> None:
    named = set(re.findall(r"`([a-z][a-z -]*)`", (ROOT / "README.md").read_text().partition("## Commands")[2]))

    assert {" ".join(verb.words) for verb in VERBS if not verb.hidden} <= named


def test_every_attack_of_the_security_page_names_tests_that_exist() -> None:
    rows = re.findall(
        r"^\| (?!attack|---|\*\*|\|)(.+?) \| (.+) \|(.*)\|$", (DOCS / "security.md").read_text(), re.MULTILINE
    )
    assert len(rows) > 20
    for attack, outcome, tests in rows:
        named = re.findall(r"`(tests/[^`]+)`", tests)
        assert named or outcome.startswith("**possible"), attack
        assert [name for name in named if not (ROOT / name).exists()] == [], attack
