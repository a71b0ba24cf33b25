"""Evidence of a run for requests of erasure: only segments that the run read through count as searched."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.erasing.test_erase_request import request
from tests.pipeline.planning.works import work_of
from tierd.model import RemoteLogSegmentId
from tierd.pipeline.committing import GroupState, PartitionRound
from tierd.pipeline.erasing.erasure_evidence import evidence_of, with_evidence
from tierd.pipeline.planning import WorkKind

GROUPS = 4
KEY = b"key"


@given(st.data())
def test_only_segments_read_through_and_their_outputs_count_as_searched(data: st.DataObject) -> None:
    looked_for = data.draw(st.frozensets(st.sampled_from([KEY, b"other"])))
    round_ = PartitionRound(work_of(GROUPS, data.draw(st.sampled_from(WorkKind)), erased_keys=looked_for))
    ids = [metadata.segment.id for metadata in round_.work.inputs]
    clean = data.draw(st.frozensets(st.sampled_from(ids)))
    asked = replace(request(KEY, log_end_offset=GROUPS * 10), searched=clean)
    outputs: dict[int, UUID] = {}
    done = data.draw(st.sets(st.integers(0, GROUPS - 1)))
    for group in range(GROUPS):
        if group in done and data.draw(st.booleans()):
            outputs[group] = UUID(int=group + 1)
            round_.commit(group, RemoteLogSegmentId(PARTITION, outputs[group]), {"records_erased": 1})
        else:
            round_.move(group, GroupState.DONE if group in done else GroupState.LEFT)
    found = evidence_of(round_, asked)
    for group in range(GROUPS):
        proven = group in done and (KEY in looked_for or ids[group] in clean)
        now = outputs.get(group, ids[group])
        assert (now in found.searched) == (proven and now not in clean)
        assert (round_.work.inputs[group] in found.replaced) == (group in outputs and ids[group] not in clean)
    after = with_evidence(asked, round_, run_id="run", now_ms=1, problems=())
    assert after.searched == clean | found.searched
    assert len(after.runs) == (1 if KEY in looked_for else 0)


def test_run_is_no_evidence_for_a_request_filed_during_the_run() -> None:
    round_ = PartitionRound(work_of(GROUPS, WorkKind.ERASE, erased_keys=frozenset([b"other"])))
    for group in range(GROUPS):
        round_.move(group, GroupState.DONE)
    asked = request(KEY, log_end_offset=GROUPS * 10)
    assert with_evidence(asked, round_, run_id="run", now_ms=1, problems=()) == asked


def test_request_counts_only_records_of_its_own_keys() -> None:
    round_ = PartitionRound(work_of(GROUPS, WorkKind.ERASE, erased_keys=frozenset([KEY, b"other"])))
    for group in range(GROUPS):
        output = RemoteLogSegmentId(PARTITION, UUID(int=group + 1))
        round_.commit(group, output, {"records_erased": 5}, erased={KEY: 2, b"other": 3})
    for key, records in ((KEY, 2), (b"other", 3)):
        asked = request(key, log_end_offset=GROUPS * 10)
        (note,) = with_evidence(asked, round_, run_id="run", now_ms=1, problems=()).runs
        assert note.records_erased == GROUPS * records


def test_records_of_unread_batches_count_for_requests_that_remove_unread_batches() -> None:
    round_ = PartitionRound(work_of(1, WorkKind.ERASE, erased_keys=frozenset([KEY])))
    output = RemoteLogSegmentId(PARTITION, UUID(int=1))
    round_.commit(0, output, {"records_erased": 9}, erased={KEY: 2})
    for removes_unread, records in ((False, 2), (True, 9)):
        asked = replace(request(KEY, log_end_offset=10), removes_unread=removes_unread)
        (note,) = with_evidence(asked, round_, run_id="run", now_ms=1, problems=()).runs
        assert note.records_erased == records
