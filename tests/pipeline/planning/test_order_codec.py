import json
import pickle
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.planning.tiers import other_partition, remote, tier
from tierd.errors import WorkOrderError
from tierd.log import AbortedTransaction, encode_producer_snapshot
from tierd.model import TopicIdPartition
from tierd.pipeline.planning import (
    Group,
    Output,
    PartitionWork,
    WorkKind,
    WorkOrder,
    decode_order,
    decode_output,
    decode_work,
    encode_order,
    encode_output,
    encode_work,
)

WORK = PartitionWork(
    index=0,
    partition=PARTITION,
    kind=WorkKind.COMPACT,
    inputs=tuple(tier(1, 2, 3)),
    groups=(Group(0, 1), Group(2, 2)),
    first_dirty_offset=10,
    round_end_offset=30,
    delete_retention_ms=5,
    producer_snapshot=encode_producer_snapshot(()),
    expire_before_ms=7,
    erased_keys=frozenset([b"\xff\x00", b""]),
    aborted=(AbortedTransaction(1, 2, 3, 4),),
)
ORDER = WorkOrder(run_id=UUID(int=3), now_ms=9, secret=bytes(range(16)), partitions=(WORK,))

names = st.text(min_size=1, max_size=20)
offsets = st.integers(0, 2**40)


@st.composite
def works(draw: st.DrawFn, index: int = 0) -> PartitionWork:
    partition = TopicIdPartition(draw(st.uuids()), draw(names), draw(st.integers(0, 2**31 - 1)))
    spans = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2**33), st.integers(0, 2**31)), max_size=5))
    inputs, at = [], 0
    for gap, length, size in spans:
        inputs.append(remote(at + gap, at + gap + length - 1, size=size, partition=partition))
        at += gap + length
    firsts = sorted(draw(st.sets(st.integers(0, len(inputs) - 1)))) if inputs else []
    return PartitionWork(
        index=index,
        partition=partition,
        kind=draw(st.sampled_from(WorkKind)),
        inputs=tuple(inputs),
        groups=tuple(Group(first, first) for first in firsts),
        first_dirty_offset=draw(offsets),
        round_end_offset=at + draw(offsets),
        delete_retention_ms=draw(offsets),
        producer_snapshot=draw(st.binary(max_size=50)),
        expire_before_ms=draw(st.none() | offsets),
        erased_keys=draw(st.frozensets(st.binary(max_size=20), max_size=3)),
        aborted=tuple(draw(st.lists(st.builds(AbortedTransaction, offsets, offsets, offsets, offsets), max_size=3))),
    )


class TestRoundTrip:
    @given(works(), st.uuids(), offsets, st.binary(min_size=16, max_size=16))
    def test_an_order_comes_back_as_it_was(self, work: PartitionWork, run: UUID, now_ms: int, secret: bytes) -> None:
        order = WorkOrder(run_id=run, now_ms=now_ms, secret=secret, partitions=(work,))
        assert decode_order(encode_order(order)) == order
        assert decode_work(encode_work(work)) == work
        assert b"\n" not in encode_order(order)

    def test_an_output_comes_back_as_it_was(self) -> None:
        output = Output(index=1, group=2, metadata=replace(remote(0, 9), custom_metadata=b"\x01\xff"))
        assert decode_output(encode_output(output)) == output

    def test_an_order_can_be_sent_to_executors(self) -> None:
        assert pickle.loads(pickle.dumps(ORDER)) == ORDER

    def test_the_secret_is_not_in_the_repr(self) -> None:
        assert repr(ORDER.secret) not in repr(ORDER)
        assert ORDER.secret.hex() not in repr(ORDER)


class TestStrictness:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"kind": "shrink"}, "kind"),
            ({"index": "0"}, "index"),
            ({"index": True}, "index"),
            ({"round_end_offset": None}, "round_end_offset"),
            ({"groups": [[0, 1], [1, 2]]}, "group 1-2"),
            ({"groups": [[0, 3]]}, "group 0-3"),
            ({"groups": [[1, 0]]}, "group 1-0"),
            ({"groups": [[0]]}, "groups.0"),
            ({"round_end_offset": 29}, "ends beyond offset 29"),
            ({"aborted": [{"producer_id": 1}]}, "aborted.0.first_offset"),
            ({"erased_keys": ["!"]}, "erased_keys.0"),
            ({"inputs": [["", "orders", 0, "", ""]]}, "inputs.0"),
            ({"inputs": "all"}, "inputs"),
            ({"surprise": 1}, "surprise"),
        ],
    )
    def test_an_error_names_the_field(self, change: dict[str, object], named: str) -> None:
        fields = json.loads(encode_work(WORK)) | change
        with pytest.raises(WorkOrderError, match=named):
            decode_work(json.dumps(fields))

    @pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"{}", b"\xff", b'{"index":0}'])
    def test_what_is_no_order_is_refused(self, content: bytes) -> None:
        for decode in (decode_order, decode_work, decode_output):
            with pytest.raises(WorkOrderError):
                decode(content)

    @given(st.binary(max_size=200))
    def test_any_bytes_are_an_order_or_refused(self, content: bytes) -> None:
        for decode in (decode_order, decode_work, decode_output):
            with pytest.raises(WorkOrderError):
                decode(content)

    def test_a_missing_field_is_no_default(self) -> None:
        fields = json.loads(encode_work(WORK))
        del fields["producer_snapshot"]
        with pytest.raises(WorkOrderError, match="producer_snapshot"):
            decode_work(json.dumps(fields))

    def test_an_input_of_another_partition_is_refused(self) -> None:
        with pytest.raises(ValueError, match="is not of"):
            replace(WORK, inputs=(remote(0, 9, partition=other_partition(1)),), groups=())

    def test_inputs_that_do_not_ascend_are_refused(self) -> None:
        with pytest.raises(ValueError, match="does not follow"):
            replace(WORK, inputs=tuple(reversed(WORK.inputs)))

    def test_an_order_of_places_that_do_not_fit_is_refused(self) -> None:
        with pytest.raises(ValueError, match="index 1 at place 0"):
            replace(ORDER, partitions=(replace(WORK, index=1),))
        with pytest.raises(ValueError, match="15 bytes"):
            replace(ORDER, secret=b"x" * 15)
