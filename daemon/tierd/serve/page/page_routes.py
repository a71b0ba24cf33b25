"""PageRoutes: the routes of the pages. Each answer has a deadline, a bound, and no script."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.model import RemoteLogSegmentMetadata, TopicPartition
from tierd.serve.page.log_layout import PartitionLayout
from tierd.serve.page.markup import Html, element, link, path_of, with_query
from tierd.serve.page.operations_page import (
    HELP_PATH,
    Anchor,
    DocumentedSection,
    read_operations_page,
    render_section,
    sections_of,
)
from tierd.serve.page.overview import render_overview
from tierd.serve.page.page_frame import OVERVIEW_PATH, RUNS_PATH, TOPICS_PATH, PageFrame, render_frame
from tierd.serve.page.page_query import ListQuery, page_of
from tierd.serve.page.page_sources import PageSources, TierSources
from tierd.serve.page.partition_page import SEGMENTS, find_segment, render_partition, render_segment, segments_in_order
from tierd.serve.page.problems import PageProblem, render_problems
from tierd.serve.page.runs_page import render_runs
from tierd.serve.page.stylesheet import CONTENT_SECURITY_POLICY
from tierd.serve.page.topic_pages import SORTS, render_topic, render_topics

_RELOAD_S: Final = 10
_MAX_PARTITION: Final = 2**31
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Answer:
    """Content of a page, and the frame around it."""

    frame: PageFrame
    content: Html
    status: int = 200


class PageRoutes:
    """Handlers of the pages over their sources."""

    def __init__(self, sources: PageSources, clock: Clock) -> None:
        """Read nothing yet; a process without ``sources.tier`` has the overview and the help alone."""
        self._sources = sources
        self._clock = clock
        self._sections: Mapping[str, DocumentedSection] | None = None

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes."""
        found = [
            web.get("/", self._answering(self._overview)),
            web.get(f"/{HELP_PATH}/{{anchor}}", self._answering(self._help)),
        ]
        if self._sources.tier is not None:
            found += [
                web.get("/topics", self._answering(self._topics)),
                web.get("/topics/{topic}", self._answering(self._topic)),
                web.get("/topics/{topic}/{partition}", self._answering(self._partition)),
                web.get("/topics/{topic}/{partition}/{segment}", self._answering(self._segment)),
                web.get("/runs", self._answering(self._runs)),
            ]
        return found

    def _answering(self, make: Callable[[web.Request], Awaitable[_Answer]]) -> _Handler:
        """Return a handler that answers within the deadline, whatever the sources do."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                async with asyncio.timeout(self._sources.deadline_s):
                    answer = await make(request)
            except TimeoutError:
                answer = self._failed(
                    "This page takes too long", f"no answer within {self._sources.deadline_s:.0f} seconds"
                )
            except TierError as error:
                answer = self._failed("This page cannot be made", error.explained)
            return self._response(answer, request)

        return handle

    def _response(self, answer: _Answer, request: web.Request) -> web.Response:
        now_ms, whose = self._clock.now_ms(), self._sources.whose
        frame = replace(answer.frame, paths=self._paths, made_ms=now_ms, whose=whose)
        headers = dict(_HEADERS)
        if answer.frame.here == OVERVIEW_PATH and request.query.get("reload"):
            headers["Refresh"] = str(_RELOAD_S)
        return web.Response(
            text=render_frame(frame, answer.content),
            content_type="text/html",
            charset="utf-8",
            status=answer.status,
            headers=headers,
        )

    @property
    def _paths(self) -> tuple[str, ...]:
        return (OVERVIEW_PATH,) if self._sources.tier is None else (OVERVIEW_PATH, TOPICS_PATH, RUNS_PATH)

    def _failed(self, title: str, why: str) -> _Answer:
        return _Answer(PageFrame(title=title), render_problems([PageProblem(why, Anchor.READY)]), status=503)

    async def _overview(self, request: web.Request) -> _Answer:
        snapshot = await self._sources.status()
        rates = self._sources.tier.rates if self._sources.tier is not None else None
        content = render_overview(snapshot, rates, ListQuery.parse(request.query))
        is_reloading = bool(request.query.get("reload"))
        reload = element(
            "p",
            link(OVERVIEW_PATH, "Stop reloading")
            if is_reloading
            else link(with_query(OVERVIEW_PATH, reload=1), f"Reload every {_RELOAD_S} seconds"),
        )
        return _Answer(PageFrame(title="Overview", here=OVERVIEW_PATH), Html(content + reload))

    async def _topics(self, request: web.Request) -> _Answer:
        inventory = await self._tier.inventory()
        query = ListQuery.parse(request.query, tuple(SORTS))
        return _Answer(PageFrame(title="Topics", here=TOPICS_PATH), render_topics(inventory, query))

    async def _topic(self, request: web.Request) -> _Answer:
        topic = request.match_info["topic"]
        content = render_topic(topic, await self._tier.inventory(), ListQuery.parse(request.query, tuple(SORTS)))
        frame = PageFrame(title=f"Topic {topic}", here=TOPICS_PATH, trail=_trail())
        return _unknown(f"topic {topic}") if content is None else _Answer(frame, content)

    async def _partition(self, request: web.Request) -> _Answer:
        layout = await self._layout(request)
        if layout is None:
            return _unknown(f"partition {request.match_info['topic']}-{request.match_info['partition']}")
        query = ListQuery.parse(request.query)
        shown, _ = page_of(segments_in_order(layout.rows), query, "", SEGMENTS)
        problems, layout = await self._with_manifests(request, layout, shown)
        frame = PageFrame(
            title=f"Partition {layout.partition}", here=TOPICS_PATH, trail=_trail(layout.partition, depth=1)
        )
        return _Answer(frame, Html(problems + render_partition(layout, query)))

    async def _segment(self, request: web.Request) -> _Answer:
        layout, text = await self._layout(request), request.match_info["segment"]
        row = None if layout is None else find_segment(layout, text)
        if layout is None or row is None:
            return _unknown(f"segment {text} of {request.match_info['topic']}-{request.match_info['partition']}")
        problems, layout = await self._with_manifests(request, layout, [row])
        frame = PageFrame(title=f"Segment {text}", here=TOPICS_PATH, trail=_trail(layout.partition, depth=2))
        return _Answer(frame, Html(problems + render_segment(layout, row)))

    async def _layout(self, request: web.Request) -> PartitionLayout | None:
        topic, number = request.match_info["topic"], request.match_info["partition"]
        return await self._tier.partition(TopicPartition(topic, int(number))) if _is_partition(number) else None

    async def _with_manifests(
        self, request: web.Request, layout: PartitionLayout, rows: Sequence[RemoteLogSegmentMetadata]
    ) -> tuple[Html, PartitionLayout]:
        """Return the layout with the manifests of ``rows`` if a person asked for them, and why some are not read."""
        if not request.query.get("records"):
            return Html(""), layout
        read, problem = await self._tier.manifests(rows)
        why = PageProblem(f"not all records are counted: {problem}", Anchor.STORE)
        problems = render_problems([why] if problem else [])
        return problems, replace(layout, manifests={**layout.manifests, **read})

    async def _runs(self, request: web.Request) -> _Answer:
        name, dash, number = request.query.get("partition", "").rpartition("-")
        partition = TopicPartition(name, int(number)) if dash and name and _is_partition(number) else None
        content = render_runs(await self._tier.past(partition), partition)
        return _Answer(PageFrame(title="Runs and cost", here=RUNS_PATH), content)

    async def _help(self, request: web.Request) -> _Answer:
        if self._sections is None:
            try:
                self._sections = sections_of(await asyncio.to_thread(read_operations_page))
            except OSError as error:
                return self._failed("The operations page cannot be read", error.strerror or str(error))
        found = self._sections.get(request.match_info["anchor"])
        if found is None:
            return _unknown(f"section {request.match_info['anchor']}")
        return _Answer(
            PageFrame(title=f"Operations: {found.title.replace('`', '')}"), render_section(found, self._sections)
        )

    @property
    def _tier(self) -> TierSources:
        assert self._sources.tier is not None, "a process without a tier has no route that asks it"
        return self._sources.tier


def _trail(partition: TopicPartition | None = None, *, depth: int = 0) -> Sequence[tuple[str, str]]:
    """Return the pages above that of a topic, of a partition (``depth`` 1) or of a segment (2)."""
    found = [(TOPICS_PATH, "All topics")]
    if partition is not None:
        found += [
            (path_of("topics", partition.topic), f"Topic {partition.topic}"),
            (path_of("topics", partition.topic, str(partition.partition)), f"Partition {partition}"),
        ]
    return found[: depth + 1]


def _unknown(what: str) -> _Answer:
    text = element("p", f"This host has no {what}. ", link(OVERVIEW_PATH, "Overview"))
    return _Answer(PageFrame(title="Not here"), text, status=404)


def _is_partition(number: str) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= 10 and int(number) < _MAX_PARTITION
