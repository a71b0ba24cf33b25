import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planning.tiers import remote
from tests.pipeline.planning.works import work_of
from tierd.log import AbortedTransaction
from tierd.model import TopicIdPartition
from tierd.pipeline.committing.messages import (
    AnswerLine,
    AskOrder,
    AskWork,
    Begin,
    Begun,
    Done,
    Failed,
    Hello,
    JobRequest,
    OrderHeader,
    Progress,
    RefusedGroup,
    RequestLine,
    Unchanged,
    Work,
    Written,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.pipeline.planning import Output, PartitionWork, WorkKind
from tierd.pipeline.planning.work_order import Group

WORK = replace(
    work_of(3),
    groups=(Group(0, 1), Group(2, 2)),
    expire_before_ms=7,
    erased_keys=frozenset([b"\xff\x00", b""]),
    aborted=(AbortedTransaction(1, 2, 3, 4),),
)

names = st.text(min_size=1, max_size=20)
offsets = st.integers(0, 2**40)


@st.composite
def works(draw: st.DrawFn) -> PartitionWork:
    partition = TopicIdPartition(draw(st.uuids()), draw(names), draw(st.integers(0, 2**31 - 1)))
    spans = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 2**33), st.integers(0, 2**31)), max_size=5))
    inputs, at = [], 0
    for gap, length, size in spans:
        inputs.append(remote(at + gap, at + gap + length - 1, size=size, partition=partition))
        at += gap + length
    firsts = sorted(draw(st.sets(st.integers(0, len(inputs) - 1)))) if inputs else []
    return PartitionWork(
        index=draw(st.integers(0, 100)),
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
        is_compacted_topic=draw(st.booleans()),
        aborted=tuple(draw(st.lists(st.builds(AbortedTransaction, offsets, offsets, offsets, offsets), max_size=3))),
    )


class TestRoundTrip:
    @given(works())
    def test_any_work_is_encoded_in_one_line_and_decoded_to_itself(self, work: PartitionWork) -> None:
        line = encode_answer(7, Work(work=work))
        assert decode_answer(line) == AnswerLine(id=7, body=Work(work=work))
        assert line.index(b"\n") == len(line) - 1

    @given(st.builds(OrderHeader, now_ms=offsets, secret=st.binary(min_size=16, max_size=16), partitions=offsets))
    def test_header_of_an_order_is_decoded_to_itself(self, header: OrderHeader) -> None:
        assert decode_answer(encode_answer(1, header)).body == header

    def test_outputs_are_decoded_to_themselves(self) -> None:
        output = Output(
            index=1, group=2, metadata=replace(remote(0, 9), custom_metadata=b"\x01\xff"), key_seed=bytes(range(32))
        )
        begun = Begun(outputs=(output,), refused=(RefusedGroup(group=3, reason="no"),))
        assert decode_answer(encode_answer(1, begun)).body == begun

    @pytest.mark.parametrize(
        "body",
        [
            Hello(version=1),
            AskOrder(),
            AskWork(index=3),
            Begin(index=1, groups=(0, 2)),
            Written(output=UUID(int=5), manifest="{}", counts={"records_read": 9}),
            Written(output=UUID(int=5), manifest="{}", erased=((0, 3), (7, 1))),
            Unchanged(index=1, group=2),
            Failed(index=1, group=2, problem="why"),
            Progress(stage="s", done=1, total=2),
            Done(counts={"inputs": 3}),
        ],
    )
    def test_request_is_decoded_to_itself(self, body: JobRequest) -> None:
        assert decode_request(encode_request(7, body)) == RequestLine(id=7, body=body)

    def test_a_request_is_a_line_of_json(self) -> None:
        line = encode_request(7, Progress(stage="s", done=1, total=2))
        assert line.endswith(b"\n")
        assert json.loads(line) == {"id": 7, "body": {"stage": "s", "done": 1, "total": 2, "request": "progress"}}


class TestStrictness:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"kind": "shrink"}, r"work\.kind"),
            ({"index": "0"}, r"work\.index"),
            ({"index": True}, r"work\.index"),
            ({"round_end_offset": None}, r"work\.round_end_offset"),
            ({"groups": [[0, 1], [1, 2]]}, "group 1-2"),
            ({"groups": [[0, 3]]}, "group 0-3"),
            ({"groups": [[1, 0]]}, "group 1-0"),
            ({"groups": [[0]]}, r"groups\.0"),
            ({"round_end_offset": 29}, "ends beyond offset 29"),
            ({"aborted": [{"producer_id": 1}]}, r"aborted\.0\.first_offset"),
            ({"erased_keys": ["!"]}, r"erased_keys\.0"),
            ({"inputs": [["", "orders", 0, "", ""]]}, r"inputs\.0"),
            ({"inputs": "all"}, "inputs"),
            ({"surprise": 1}, "surprise"),
        ],
    )
    def test_decoding_error_names_the_field(self, change: dict[str, object], named: str) -> None:
        fields = json.loads(encode_answer(1, Work(work=WORK)))
        fields["body"]["work"] |= change
        with pytest.raises(WorkOrderError, match=named):
            decode_answer(json.dumps(fields).encode())

    def test_missing_field_is_refused(self) -> None:
        fields = json.loads(encode_answer(1, Work(work=WORK)))
        del fields["body"]["work"]["producer_snapshot"]
        with pytest.raises(WorkOrderError, match="producer_snapshot"):
            decode_answer(json.dumps(fields).encode())

    @pytest.mark.parametrize("decode", [decode_request, decode_answer])
    @pytest.mark.parametrize("line", [b"", b"[]", b"null", b"{", b"{}", b"\xff", b'{"id":0}', b'{"id":0,"body":{}}'])
    def test_malformed_line_is_refused(self, decode: Callable[[bytes], object], line: bytes) -> None:
        with pytest.raises(WorkOrderError):
            decode(line)

    @pytest.mark.parametrize("decode", [decode_request, decode_answer])
    @given(line=st.binary(max_size=200))
    def test_random_bytes_are_refused(self, decode: Callable[[bytes], object], line: bytes) -> None:
        with pytest.raises(WorkOrderError):
            decode(line)
