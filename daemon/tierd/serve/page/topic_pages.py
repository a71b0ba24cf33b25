"""Pages of the inventory: all topics, and the partitions of one topic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tierd.model import TopicPartition
from tierd.serve.page.markup import Column, Html, element, joined, link, moment, number_text, path_of, table
from tierd.serve.page.operations_page import Anchor, help_link
from tierd.serve.page.page_frame import TOPICS_PATH
from tierd.serve.page.page_query import ListQuery, filter_form, page_of
from tierd.serve.page.page_sources import HostInventory
from tierd.sizes import human_size
from tierd.tiering import ManifestFacts, PartitionInventory, TierContents, sum_contents

_LATEST: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """One topic, or one partition of it: its contents, and why some are not known here."""

    name: str
    path: str
    contents: TierContents
    partitions: int
    elsewhere: tuple[str, ...] = ()
    number: int = field(default=0)


SORTS: Final[Mapping[str, str]] = {
    "": "Name",
    "size": "Size, largest first",
    "segments": "Segments, most first",
    "offsets": "Offsets, most first",
    "oldest": "Oldest first",
    "newest": "Newest first",
}
_ORDERS: Final[Mapping[str, Callable[[TopicLine], int]]] = {
    "size": lambda line: -line.contents.size_bytes,
    "segments": lambda line: -line.contents.segments,
    "offsets": lambda line: -line.contents.offsets,
    "oldest": lambda line: _LATEST if line.contents.oldest_ms is None else line.contents.oldest_ms,
    "newest": lambda line: _LATEST if line.contents.newest_ms is None else -line.contents.newest_ms,
}
_NUMBERS: Final = ("Segments", "Size", "Offsets", "Records", "Compression")


def render_topics(inventory: HostInventory, query: ListQuery) -> Html:
    """Return the content of the page of all topics."""
    lines = [line for line in topic_lines(inventory) if query.matches(line.name)]
    total = sum_contents(line.contents for line in lines)
    return joined(
        (
            _total(total, len(lines)),
            filter_form(TOPICS_PATH, query, SORTS, "Topics: a part of the name, or a pattern with * and ?"),
            _lines(lines, query, TOPICS_PATH, "topics", "Topic", with_partitions=True),
        )
    )


def render_topic(topic: str, inventory: HostInventory, query: ListQuery) -> Html | None:
    """Return the content of the page of one topic; None for a topic that this host does not know."""
    lines = partition_lines(topic, inventory)
    if not lines:
        return None
    path = path_of("topics", topic)
    return joined(
        (
            _total(sum_contents(line.contents for line in lines), 1),
            filter_form(path, query, SORTS, "Partitions: a number, or a pattern with * and ?"),
            _lines(
                [line for line in lines if query.matches(line.name)],
                query,
                path,
                "partitions",
                "Partition",
                with_partitions=False,
            ),
        )
    )


def topic_lines(inventory: HostInventory) -> list[TopicLine]:
    """Return a line for each topic, by name."""
    contents: dict[str, list[TierContents]] = {}
    elsewhere: dict[str, list[str]] = {}
    for each in inventory.partitions:
        contents.setdefault(each.partition.topic, []).append(each.contents)
    for partition, why in inventory.elsewhere.items():
        elsewhere.setdefault(partition.topic, []).append(why)
    return [
        TopicLine(
            name=topic,
            path=path_of("topics", topic),
            contents=sum_contents(contents.get(topic, ())),
            partitions=len(contents.get(topic, ())) + len(elsewhere.get(topic, ())),
            elsewhere=tuple(dict.fromkeys(elsewhere.get(topic, ()))),
        )
        for topic in sorted({*contents, *elsewhere})
    ]


def partition_lines(topic: str, inventory: HostInventory) -> list[TopicLine]:
    """Return a line for each partition of a topic, by number."""
    known = [_known_line(each) for each in inventory.partitions if each.partition.topic == topic]
    others = [
        _line(partition, TierContents(), (why,))
        for partition, why in inventory.elsewhere.items()
        if partition.topic == topic
    ]
    return sorted([*known, *others], key=lambda line: line.number)


def ratio_text(facts: ManifestFacts | None) -> str:
    """Return how many times smaller the stored objects are than the logs; empty where no manifest was read."""
    if facts is None or not facts.stored_bytes:
        return ""
    return f"{facts.log_bytes / facts.stored_bytes:.2f}"


def records_text(contents: TierContents) -> str:
    """Return the number of records, as far as manifests were read; empty where none was."""
    facts = contents.facts
    if facts is None or not facts.manifests:
        return ""
    counted = number_text(facts.record_count)
    return counted if facts.manifests == contents.segments else f"{counted} in {facts.manifests:,} segments"


def _known_line(each: PartitionInventory) -> TopicLine:
    return _line(each.partition.topic_partition, each.contents, ())


def _line(partition: TopicPartition, contents: TierContents, elsewhere: tuple[str, ...]) -> TopicLine:
    return TopicLine(
        name=str(partition.partition),
        path=path_of("topics", partition.topic, str(partition.partition)),
        contents=contents,
        partitions=1,
        elsewhere=elsewhere,
        number=partition.partition,
    )


def _total(total: TierContents, topics: int) -> Html:
    segments, size = number_text(total.segments), human_size(total.size_bytes)
    text = f"{segments} segments, {size} before compression, in {total.partitions:,} partitions that this daemon leads"
    if topics != 1:
        text += f", of {topics:,} topics"
    if total.expired_segments:
        text += f"; {total.expired_segments:,} more segments are expired and in their grace"
    return element("p", f"{text}.")


def _lines(
    lines: Sequence[TopicLine], query: ListQuery, path: str, noun: str, title: str, *, with_partitions: bool
) -> Html:
    ordered = sorted(lines, key=_ORDERS[query.sort]) if query.sort else lines
    shown, page = page_of(ordered, query, path, noun)
    if not shown:
        return element("p", f"No {noun} to show.", class_="quiet")
    columns = [Column(title, sort=None if query.sort else "ascending")]
    columns += [Column("Partitions", is_number=True)] if with_partitions else []
    columns += [Column(number, is_number=True) for number in _NUMBERS]
    columns += [Column("Oldest"), Column("Newest")]
    rows = [_cells(line, with_partitions=with_partitions) for line in shown]
    if any(line.elsewhere for line in shown):
        columns.append(Column("Not known here, because"))
        rows = [[*row, _why(line)] for row, line in zip(rows, shown, strict=True)]
    return joined((table(page.text, columns, rows), page.links))


def _cells(line: TopicLine, *, with_partitions: bool) -> list[str]:
    contents = line.contents
    return [
        link(line.path, line.name),
        *([number_text(line.partitions)] if with_partitions else []),
        number_text(contents.segments),
        human_size(contents.size_bytes),
        number_text(contents.offsets),
        records_text(contents),
        ratio_text(contents.facts),
        "" if contents.oldest_ms is None else moment(contents.oldest_ms),
        "" if contents.newest_ms is None else moment(contents.newest_ms),
    ]


def _why(line: TopicLine) -> str:
    return joined(("; ".join(line.elsewhere), " ", help_link(Anchor.STATES))) if line.elsewhere else ""
