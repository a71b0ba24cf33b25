"""Pages in a real Chromium: what is seen, what axe finds, and where keys lead. A failure leaves a screenshot."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.serve.page.page_values import HOSTILE, MARKUP, Host, facts_of, host_with, inventory_of
from tests.serve.page.test_page_routes import page_server
from tests.services.chromium import ChromiumService, Tab, artefacts
from tests.services.services import Services
from tests.services.waiting import wait_until
from tierd.model import TopicPartition
from tierd.serve.page.markup import path_of

pytestmark = pytest.mark.service("chromium")

SEEN = {
    "/": ("Proven until", "At risk now", "Lag of the tier", "The last day", "Store", "Last runs"),
    "/topics": ("Topics", "Show"),
    "/help/drills": ("Operations: Drills", "The command is a program"),
    "/runs": ("Compaction and audit", "Restore drills", "Deletions", "Cost"),
}
"""Headings and buttons of the pages that each host has."""
OF_PARTITIONS = {
    path_of("topics", MARKUP): (f"Topic {MARKUP}", "Partition"),
    path_of("topics", MARKUP, "0"): (f"Partition {MARKUP}-0", "What is where", "Over time", "gap: nowhere", "Segments"),
}

OpenTab = Callable[..., AbstractAsyncContextManager[Tab]]


@pytest_asyncio.fixture
async def open_tab(chromium: ChromiumService, tmp_path: Path, request: pytest.FixtureRequest) -> OpenTab:
    """Return a function that opens a tab, which leaves a screenshot if the test fails in it."""

    @asynccontextmanager
    async def opened(*, dark: bool = False, width: int = 1280) -> AsyncIterator[Tab]:
        async with chromium.tab(dark=dark, width=width) as tab:
            try:
                yield tab
                assert tab.complaints == []
            except Exception:
                name = "".join(each if each.isalnum() else "-" for each in request.node.name)
                await tab.screenshot(artefacts(tmp_path) / f"{name}.png")
                raise

    return opened


@asynccontextmanager
async def site_of(host: Host) -> AsyncIterator[str]:
    """Serve the pages of a host; yield the address."""
    async with asyncio.TaskGroup() as group, page_server(host.sources()).listening(group) as url:
        yield url


@pytest.mark.parametrize("partitions", [0, 4, 10_000])
async def test_every_page_shows_its_parts_and_axe_finds_nothing_in_light_and_dark(
    open_tab: OpenTab, partitions: int
) -> None:
    pages = SEEN | (OF_PARTITIONS if partitions == 4 else {})  # they are the same for any number of others
    async with site_of(host_with(partitions)) as url:
        for dark in (False, True):
            async with open_tab(dark=dark) as tab:
                for path, texts in pages.items():
                    await tab.open(url + path)
                    seen = await tab.text()
                    assert [text for text in texts if text not in seen] == []
                    # Of all rules, that of contrast alone depends on the colours.
                    assert await tab.faults(rules=["color-contrast"] if dark else ()) == []


async def test_ten_thousand_partitions_are_shown_in_pages_and_the_worst_is_first(open_tab: OpenTab) -> None:
    async with site_of(host_with(10_000)) as url, open_tab() as tab:
        await tab.open(url)
        rows = "[...document.querySelectorAll('main tbody tr th')].map(cell => cell.innerText)"
        names = await tab.evaluate(rows)
        assert names[0] == f"{MARKUP}-0"
        assert len(names) == 100
        seen = await tab.text()
        assert "1 to 100 of 10,000 partitions" in seen
        assert f"torn {MARKUP}; run it what to do" in seen
        await tab.evaluate("[...document.links].find(link => link.innerText === 'Next page').focus()")
        await tab.follow()
        assert "101 to 200 of 10,000 partitions" in await tab.text()


async def test_keys_reach_the_content_first_then_the_sections_in_their_order(open_tab: OpenTab) -> None:
    active = "document.activeElement.name || document.activeElement.innerText"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    async with site_of(host_with(4)) as url, open_tab() as tab:
        await tab.open(f"{url}/topics")
        reached = []
        for _ in range(8):
            await tab.press("Tab")
            reached.append(await tab.evaluate(active))
            assert await tab.evaluate(outline) != "none"
        assert reached == [
            *("Skip to the content", "tierd", "Overview", "Topics", "Runs and cost", "pattern", "sort", "Show"),
        ]
        await tab.open(f"{url}/topics")
        await tab.press("Tab")
        await tab.press("Enter")
        assert await tab.evaluate("document.activeElement.id") == "main"
        await tab.press("Tab")
        assert await tab.evaluate(active) == "pattern"


async def test_form_filters_topics_by_keys_alone(open_tab: OpenTab) -> None:
    host = host_with(0)
    host.held = inventory_of(["bills-0", "orders-0", "orders-old-0"])
    async with site_of(host) as url, open_tab() as tab:
        await tab.open(f"{url}/topics")
        await tab.evaluate("document.getElementById('pattern').focus()")
        await tab.call("Input.insertText", text="ord*")
        await tab.follow()
        names = await tab.evaluate("[...document.querySelectorAll('tbody th')].map(cell => cell.innerText)")
        assert names == ["orders", "orders-old"]
        assert await tab.evaluate("document.getElementById('pattern').value") == "ord*"
        await tab.evaluate("document.querySelector('tbody th a').focus()")
        await tab.follow()
        assert "Topic orders" in await tab.text()


@pytest.mark.parametrize("topic", HOSTILE)
async def test_name_that_looks_like_markup_is_read_as_it_is_and_its_links_work(open_tab: OpenTab, topic: str) -> None:
    host = host_with(0)
    host.held = inventory_of([f"{topic}-0"])
    host.facts = {TopicPartition(topic, 0): facts_of(f"{topic}-0")}
    async with site_of(host) as url, open_tab() as tab:
        await tab.open(f"{url}/topics")
        for heading in ("Topic ", "Partition "):
            await tab.evaluate("document.querySelector('tbody th a').focus()")
            await tab.follow()
            shown = await tab.evaluate("document.querySelector('h1').innerText")
            assert shown.startswith(heading + topic[0].replace("\x1b", "\\x1b"))
        assert await tab.evaluate("document.scripts.length") == 0


async def test_picture_is_described_for_screen_readers_and_wide_parts_scroll_on_a_narrow_screen(
    open_tab: OpenTab,
) -> None:
    async with site_of(host_with(4)) as url, open_tab(width=400) as tab:
        await tab.open(f"{url}/topics/orders/0")
        tree = await tab.call("Accessibility.getFullAXTree")
        images = [
            (node["name"]["value"], node.get("description", {}).get("value", ""))
            for node in tree["nodes"]
            if node.get("role", {}).get("value") in ("image", "img")
        ]
        assert any("What is where over offsets" in f"{name} {about}" and "Gap: 100 to 149" in f"{name} {about}"
                   for name, about in images)  # fmt: skip
        landmarks = {node["role"]["value"] for node in tree["nodes"] if "role" in node}
        assert {"banner", "main", "contentinfo", "navigation"} <= landmarks
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 400
        assert await tab.faults() == []


async def test_why_not_leads_to_the_text_of_its_section(open_tab: OpenTab) -> None:
    async with site_of(host_with(4)) as url, open_tab() as tab:
        await tab.open(url)
        await tab.evaluate("document.querySelector('td a[href^=\"/help/\"]').focus()")
        await tab.follow()
        seen = await tab.text()
        assert "Operations: Errors" in seen
        assert "AlreadyRunningError" in seen


async def test_drill_down_comes_to_a_segment_and_axe_finds_nothing_there(open_tab: OpenTab) -> None:
    async with site_of(host_with(4)) as url, open_tab() as tab:
        await tab.open(f"{url}/topics/orders/0")
        await tab.evaluate("document.querySelector('#segments a.id').focus()")
        await tab.follow()
        seen = await tab.text()
        assert "Segment " in seen
        assert "Where its offsets are" in seen
        assert await tab.faults() == []


async def test_failure_leaves_a_screenshot(open_tab: OpenTab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERD_ARTEFACTS", str(tmp_path / "artefacts"))

    async def fail(url: str) -> None:
        async with open_tab() as tab:
            await tab.open(url)
            raise AssertionError("as a test would fail")

    async with site_of(host_with(4)) as url:
        with pytest.raises(AssertionError, match="as a test would fail"):
            await fail(url)
    (shot,) = (tmp_path / "artefacts").iterdir()
    assert shot.name == "test-failure-leaves-a-screenshot.png"
    assert shot.read_bytes().startswith(b"\x89PNG")


def test_no_process_of_a_browser_outlives_its_stop(chromium: ChromiumService, tmp_path: Path) -> None:
    assert chromium.url, "a browser is installed"

    def processes() -> list[str]:
        lines = (each / "cmdline" for each in Path("/proc").iterdir() if each.name.isdigit())
        return [text for line in lines if (text := _read(line)) and str(tmp_path) in text]

    with Services(tmp_path) as services:
        services.start("chromium")
        assert processes()
        services.stop("chromium")
        wait_until(lambda: not processes(), what="the end of the browser", deadline_s=30)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


async def test_browser_refuses_a_script_that_a_page_would_have(open_tab: OpenTab) -> None:
    async with site_of(host_with(4)) as url, open_tab() as tab:
        await tab.open(url)
        await tab.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))"
        )
        assert await tab.evaluate("window.ran") is None
        assert "Content Security Policy" in tab.complaints.pop()
