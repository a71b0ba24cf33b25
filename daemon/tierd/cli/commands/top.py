"""``tierd top``: rates of the running daemon."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, pairwise
from typing import Annotated

import typer

from tierd.cli.asking import ask_daemon, until_interrupted
from tierd.cli.display import live_group
from tierd.cli.layout import Part, plain_table, plain_text
from tierd.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption, SocketOption
from tierd.cli.printing import print_json
from tierd.cli.rates import Rates, rates_between, totals_of
from tierd.serve import STATUS, StatusAnswer, StatusRequest
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


def rendered_rates(status: StatusAnswer, rates: Rates | None) -> list[Part]:
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


def _busiest(rates: Rates) -> list[Part]:
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
