"""Pages over a real socket: policy, deadlines, paths that may be anything."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from tests.fakes.manual_clock import ManualClock
from tests.serve.page.page_values import HOSTILE, Host, facts_of, host_with, inventory_of
from tests.serve.test_http_server import gate_of
from tierd.clock import SystemClock
from tierd.errors import StateDirError
from tierd.model import TopicPartition, uuid_to_text
from tierd.serve import HostInventory, HttpServer, PageSources
from tierd.serve.page import page_routes
from tierd.serve.page.page_query import ROWS_PER_PAGE


def page_server(sources: PageSources) -> HttpServer:
    clock = SystemClock()
    return HttpServer(
        host="127.0.0.1",
        port=0,
        metrics=lambda: (b"tierd_up 1\n", "text/plain"),
        stalled=lambda: None,
        not_ready=list,
        sources=sources,
        gate=gate_of(clock),
        clock=clock,
    )


class Site:
    """A host and its server."""

    def __init__(self, host: Host, url: str) -> None:
        self.host = host
        self.url = url

    async def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        address = URL(self.url + path, encoded=True)
        async with aiohttp.ClientSession() as session, session.get(address) as reply:
            return reply.status, await reply.text(), dict(reply.headers)


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    host = host_with(4)
    async with asyncio.TaskGroup() as group, page_server(host.sources()).listening(group) as url:
        yield Site(host, url)


def with_inventory(host: Host, inventory: Callable[[], Awaitable[HostInventory]]) -> PageSources:
    sources = host.sources()
    assert sources.tier is not None
    return replace(sources, tier=replace(sources.tier, inventory=inventory))


PATHS = ("/", "/topics", "/topics/orders", "/topics/orders/0", "/runs", "/help/drills")


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_forbids_scripts_and_content_from_elsewhere(site: Site, path: str) -> None:
    status, body, headers = await site.get(path)
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "<script" not in body
    assert " style=" not in body
    assert "://" not in body.replace("http://www.w3.org", "") or path.startswith("/help")


@pytest.mark.parametrize("topic", HOSTILE)
async def test_topic_that_looks_like_markup_has_pages_under_its_encoded_name(site: Site, topic: str) -> None:
    site.host.held = inventory_of([f"{topic}-0"])
    site.host.facts = {TopicPartition(topic, 0): facts_of(f"{topic}-0")}
    for path in (f"/topics/{quote(topic, safe='')}", f"/topics/{quote(topic, safe='')}/0"):
        status, body, _ = await site.get(path)
        assert status == 200
        assert "<script" not in body
    assert f'href="/topics/{quote(topic, safe="")}"' in body


@pytest.mark.parametrize(
    "path",
    [
        "/topics/none",
        "/topics/orders/7",
        "/topics/orders/x",
        "/topics/orders/99999999999",
        "/help/none",
        "/topics/%ff%fe",
    ],
)
async def test_unknown_path_is_404_with_a_link_back(site: Site, path: str) -> None:
    status, body, _ = await site.get(path)
    assert status == 404
    assert "Not here" in body
    assert 'href="/"' in body


async def test_source_that_hangs_is_answered_in_time_and_holds_no_probe_and_no_status_back(site: Site) -> None:
    asked = asyncio.Event()

    async def never() -> HostInventory:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return HostInventory()

    hanging = page_server(replace(with_inventory(site.host, never), deadline_s=0.3))
    async with asyncio.TaskGroup() as group, hanging.listening(group) as url:
        slow = Site(site.host, url)
        page = group.create_task(slow.get("/topics"))
        await asked.wait()
        assert (await slow.get("/livez"))[0] == 200
        assert (await slow.get("/status"))[0] == 200
        status, body, headers = await page
    assert status == 503
    assert "takes too long" in body
    assert 'href="/help/ready-alive-and-services-that-are-away"' in body
    assert "Content-Security-Policy" in headers


async def test_source_that_fails_says_why_and_what_to_do(site: Site) -> None:
    async def fails() -> HostInventory:
        raise StateDirError("the disk is <gone>", remedy="mend it")

    failing = page_server(with_inventory(site.host, fails))
    async with asyncio.TaskGroup() as group, failing.listening(group) as url:
        status, body, _ = await Site(site.host, url).get("/topics")
    assert status == 503
    assert "the disk is &lt;gone&gt;; mend it" in body


async def test_records_are_counted_on_request_alone_and_of_one_page_of_segments(site: Site) -> None:
    await site.get("/topics/orders/0")
    assert site.host.asked == []
    _, body, _ = await site.get("/topics/orders/0?records=1")
    assert site.host.asked == [6]
    assert max(site.host.asked) <= ROWS_PER_PAGE
    assert '<td class="n">100</td><td class="n">4.00</td>' in body


async def test_segment_has_a_page_with_its_manifest_on_request(site: Site) -> None:
    row = site.host.facts[TopicPartition("orders", 0)].rows[-2]
    path = f"/topics/orders/0/{uuid_to_text(row.segment.id)}"
    assert f'href="{path}"' in (await site.get("/topics/orders/0"))[1]
    status, body, _ = await site.get(path)
    assert status == 200
    assert site.host.asked == []
    assert "Read the manifest" in body
    assert 'href="/topics/orders/0">Partition orders-0</a>' in body
    _, body, _ = await site.get(f"{path}?records=1")
    assert site.host.asked == [1]
    assert "<dt>Records</dt><dd>100</dd>" in body
    assert (await site.get("/topics/orders/0/AAAAAAAAAAAAAAAAAAAAAA"))[0] == 404


async def test_store_that_is_down_leaves_the_page_and_names_the_cause(site: Site) -> None:
    site.host.store_problem = "the object store did not answer within 3 s"
    status, body, _ = await site.get("/topics/orders/0?records=1")
    assert status == 200
    assert "not all records are counted: the object store did not answer within 3 s" in body
    assert "What is where" in body


async def test_overview_reloads_only_where_a_person_asked_for_it(site: Site) -> None:
    _, body, headers = await site.get("/")
    assert "Refresh" not in headers
    assert 'href="/?reload=1"' in body
    assert "http-equiv" not in body
    _, body, headers = await site.get("/?reload=1")
    assert headers["Refresh"] == "10"
    assert "Stop reloading" in body


async def test_process_without_a_tier_has_the_overview_alone(site: Site) -> None:
    sources = replace(site.host.sources(), tier=None)
    async with asyncio.TaskGroup() as group, page_server(sources).listening(group) as url:
        alone = Site(site.host, url)
        status, body, _ = await alone.get("/")
        assert status == 200
        assert 'href="/topics"' not in body
        assert (await alone.get("/topics"))[0] == 404
        assert (await alone.get("/help/drills"))[0] == 200


async def test_page_as_of_is_the_clock_of_the_server() -> None:
    routes = page_routes.PageRoutes(Host().sources(), ManualClock(now_ms=1_700_000_000_000))
    assert {route.path for route in routes.routes() if isinstance(route, aiohttp.web.RouteDef)} == {
        *(
            "/",
            "/topics",
            "/topics/{topic}",
            "/topics/{topic}/{partition}",
            "/topics/{topic}/{partition}/{segment}",
            "/runs",
            "/help/{anchor}",
        ),
    }
