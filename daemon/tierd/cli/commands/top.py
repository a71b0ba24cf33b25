"""``tierd top``: rates of the running daemon, from two answers of its status."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice, pairwise
from typing import Annotated

import typer

from tierd.cli.asking import ask_daemon, until_interrupted
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.output.display import live_group
from tierd.cli.output.layout import LayoutPart, plain_table, plain_text
from tierd.cli.output.printing import print_json
from tierd.serve import STATUS, PartitionSummary, StatusAnswer, StatusRequest, TotalsSummary
from tierd.sizes import human_size

_BUSIEST = 20
_WORDS = {
    "copied_bytes": "copied to the tier",
    "copied_segments": "segments copied",
    "copy_errors": "copies failed",
    "fetches": "reads from the tier",
    "fetched_bytes": "read from the tier",
    "fetch_errors": "reads failed",
    "deletions": "segments deleted",
    "delete_errors": "deletions failed",
    "store_requests": "requests to the store",
    "store_bytes": "to and from the store",
    "endpoint_sent_bytes": "sent to Kafka clients",
    "endpoint_received_bytes": "received from Kafka clients",
}


@dataclass(frozen=True, slots=True)
class PartitionRate:
    """Movement of one partition: records a second into the tier and into the log, and the bytes that wait."""

    partition: str
    copied: float
    written: float
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Work between two answers.

    Attributes:
        seconds: time between them, by the clock of the daemon; above 0.
        work: each number of ``TotalsSummary``, and the bytes of the read endpoint, a second.
        partitions: those that moved, the busiest first.
    """

    seconds: float
    work: dict[str, float]
    partitions: tuple[PartitionRate, ...]


def top(
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Seconds between two answers.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show the rates of one interval, then exit; for programs and cron.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    socket: SocketOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what the running daemon does a second, until Ctrl-C: copies, reads, deletions, clients, busy partitions.

    A rate is the difference of two answers of the daemon. On a terminal the rates are shown in place, elsewhere one
    below the other.

    Examples:
        tierd top --interval 10

        tierd top --once --json
    """
    with until_interrupted(lambda: ask_daemon(config, socket, STATUS, StatusRequest()), every_s=interval_s) as answers:
        _show_each(islice(answers, 2) if once else answers, as_json=as_json)


def _show_each(answers: Iterator[StatusAnswer], *, as_json: bool) -> None:
    if as_json:
        for before, after in pairwise(answers):
            if (rates := rates_between(before, after)) is not None:
                print_json(asdict(rates), flush=True)
        return
    with live_group() as show:
        for before, after in pairwise(answers):
            show(*rendered_rates(after, rates_between(before, after)))


def rendered_rates(status: StatusAnswer, rates: Rates | None) -> list[LayoutPart]:
    """Return the rates for people; without rates, a line that says why there are none."""
    head = plain_text(f"tierd {status.version}, process {status.pid}" + ("" if status.not_ready else ", ready"))
    causes = [plain_text(f"not ready: {cause}", "red") for cause in status.not_ready]
    if rates is None:
        return [head, *causes, plain_text("the daemon was started again: no rates yet", "yellow")]
    waiting = sum(each.lag_bytes for each in status.partitions)
    segments = sum(each.lag_segments for each in status.partitions)
    lag = plain_text(f"to copy: {segments} segments, {human_size(waiting)}; rates over {rates.seconds:.1f} s")
    totals = totals_of(status)
    work = plain_table(("work",), ("a second", "since the start"), "")
    for name, words in _WORDS.items():
        work.add_row(words, _amount(name, rates.work[name]), _amount(name, totals[name]), "")
    return [head, *causes, lag, work, *_busiest(rates)]


def _busiest(rates: Rates) -> list[LayoutPart]:
    if not rates.partitions:
        return []
    table = plain_table(("busiest",), ("copied/s", "written/s", "to copy"), "")
    for each in rates.partitions[:_BUSIEST]:
        table.add_row(each.partition, f"{each.copied:.1f}", f"{each.written:.1f}", human_size(each.lag_bytes), "")
    return [table]


def _amount(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return human_size(round(value))
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def totals_of(status: StatusAnswer) -> dict[str, int]:
    """Return the work since the start: the totals, and the bytes of all listeners of the read endpoint."""
    listeners = status.endpoint.listeners.values()
    return {
        **{name: getattr(status.totals, name, 0) for name in TotalsSummary.model_fields},
        "endpoint_sent_bytes": sum(each.sent_bytes for each in listeners),
        "endpoint_received_bytes": sum(each.received_bytes for each in listeners),
    }


def rates_between(before: StatusAnswer, after: StatusAnswer) -> Rates | None:
    """Return the rates between two answers of one daemon; None if it was started again, or its clock stepped back.

    A number that fell, since a topic went, has the rate 0.
    """
    seconds = (after.now_ms - before.now_ms) / 1000
    if (before.pid, before.started_ms) != (after.pid, after.started_ms) or seconds <= 0:
        return None
    earlier = totals_of(before)
    work = {name: max(0, total - earlier[name]) / seconds for name, total in totals_of(after).items()}
    former = {each.partition: each for each in before.partitions}
    moved = [_moved(former[each.partition], each, seconds) for each in after.partitions if each.partition in former]
    busy = [each for each in moved if each.copied or each.written]
    return Rates(seconds, work, tuple(sorted(busy, key=lambda each: (-each.copied - each.written, each.partition))))


def _moved(before: PartitionSummary, after: PartitionSummary, seconds: float) -> PartitionRate:
    return PartitionRate(
        after.partition,
        copied=_records(before.copied_through, after.copied_through) / seconds,
        written=_records(before.high_watermark, after.high_watermark) / seconds,
        lag_bytes=after.lag_bytes,
    )


def _records(before: int | None, after: int | None) -> int:
    """Return the offsets between two answers; 0 where one is not known, or after a truncation."""
    return 0 if before is None or after is None else max(0, after - before)
