"""Proofs of a run for a request: the segments without its keys, and the segments that were replaced. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.committing import GroupState, PartitionRound
from tierd.pipeline.erasing.erase_request import EraseRequest, SearchNote

_PROBLEMS_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class Evidence:
    """Proof of one round of a partition for one request.

    Attributes:
        searched: ids of segments that are newly known to be without the keys.
        replaced: inputs that may have held a key, and that outputs have replaced.
        looked: True if the round searched for all keys of the request.
    """

    searched: frozenset[UUID]
    replaced: tuple[RemoteLogSegmentMetadata, ...]
    searched_all_keys: bool


def evidence_of(round_: PartitionRound, request: EraseRequest) -> Evidence:
    """Return what the done groups of a round prove.

    A segment that the round searched, or wrote without the keys, is without the keys. An output of inputs without the
    keys is without the keys too, whatever the purpose of the round.
    """
    searched: set[UUID] = set()
    replaced: list[RemoteLogSegmentMetadata] = []
    searched_all_keys = bool(request.keys) and request.keys <= round_.work.erased_keys
    for group, state in enumerate(round_.states):
        if state is not GroupState.DONE:
            continue
        inputs = round_.work.group_inputs(group)
        concerned = [metadata for metadata in inputs if request.concerns(metadata)]
        output = round_.outputs.get(group)
        if output is not None:
            replaced += concerned
        if searched_all_keys or not concerned:
            searched.update([output.id] if output is not None else [metadata.segment.id for metadata in inputs])
    return Evidence(frozenset(searched - request.searched), tuple(replaced), searched_all_keys)


def with_evidence(
    request: EraseRequest, round_: PartitionRound, *, run_id: str, now_ms: int, problems: Iterable[str]
) -> EraseRequest:
    """Return the request after a run over its partition; a run that proved nothing leaves it unchanged."""
    found = evidence_of(round_, request)
    if not (found.searched or found.replaced or found.searched_all_keys):
        return request
    outputs = {output.id for output in round_.outputs.values()}
    note = SearchNote(
        run_id=run_id,
        ended_at_ms=now_ms,
        searched=len(found.searched),
        rewritten=len(found.searched & outputs),
        records_erased=_records_erased(round_, request),
        problems=tuple(problems)[:_PROBLEMS_KEPT],
    )
    if not found.searched_all_keys:  # the round searched no keys of the request: known proofs are carried over
        return request.inherited(found.searched, found.replaced)
    return request.after_search(note, searched=found.searched, replaced=found.replaced)


def _records_erased(round_: PartitionRound, request: EraseRequest) -> int:
    """Return how many records went: those of the keys, and those of unopened batches if the request wanted that."""
    of_keys = sum(round_.erased[key] for key in request.keys)
    if not request.removes_unread:
        return of_keys
    return of_keys + max(0, round_.counts["records_erased"] - round_.erased.total())
