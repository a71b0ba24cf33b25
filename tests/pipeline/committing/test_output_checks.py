from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.remote_segments import PARTITION, SESSION, STARTED
from tests.pipeline.planning.tiers import remote, tier, view_of
from tierd.metadata import Claim
from tierd.model import RemoteLogSegmentId
from tierd.pipeline.committing.output_checks import begun_output, inputs_problem, output_epochs

CLAIM = Claim(7, 2, SESSION)
OUTPUT = RemoteLogSegmentId(PARTITION, UUID(int=9))


class TestEpochs:
    def test_epochs_of_an_output_are_those_of_its_inputs_without_repetition(self) -> None:
        inputs = [remote(0, 9, epochs={0: 0, 1: 5}), remote(10, 19, epochs={1: 10}), remote(20, 29, epochs={4: 20})]
        assert output_epochs(inputs) == ((0, 0), (1, 5), (4, 20))

    def test_inputs_whose_epochs_decrease_are_refused(self) -> None:
        with pytest.raises(ValueError, match="goes back from leader epoch 2 to 1"):
            output_epochs([remote(0, 9, epochs=2), remote(10, 19, epochs=1)])


class TestBegunOutput:
    def test_begun_output_covers_its_inputs_and_is_later(self) -> None:
        inputs = [replace(m, event_timestamp_ms=50 + n) for n, m in enumerate(tier(3, 4, newest_ms=(8, 6)))]
        row = begun_output(OUTPUT, inputs, CLAIM, now_ms=10)
        assert (row.start_offset, row.end_offset, row.size_bytes, row.max_timestamp_ms) == (0, 19, 7, 8)
        assert (row.leader_epoch, row.broker_id, row.session_id) == CLAIM
        assert row.event_timestamp_ms == 52
        assert row.state is STARTED
        assert begun_output(OUTPUT, inputs, CLAIM, now_ms=99).event_timestamp_ms == 99


class TestInputs:
    def test_unchanged_inputs_are_no_problem(self) -> None:
        view = view_of(tier(1, 1))
        assert inputs_problem(view, view.list()) is None

    def test_removed_input_is_named(self) -> None:
        view = view_of(tier(1, 1))
        missing = remote(20, 29)
        assert inputs_problem(view, [*view.list(), missing]) == f"{missing.segment} is gone"

    def test_input_with_changed_metadata_is_named(self) -> None:
        view = view_of(tier(1))
        (row,) = view.list()
        assert "other metadata" in str(inputs_problem(view, [replace(row, size_bytes=2)]))

    def test_input_that_another_segment_covers_is_named(self) -> None:
        segments = tier(1)
        view = view_of([*segments, remote(0, 15)])
        covered = view.segments[segments[0].segment.id]
        assert "no reader" in str(inputs_problem(view, [covered]))

    def test_inputs_below_the_log_start_are_refused(self) -> None:
        view = view_of(tier(1, 1), log_start=20)
        assert "starts at offset 20" in str(inputs_problem(view, view.list()))
        partly = view_of(tier(1, 1), log_start=15)
        assert inputs_problem(partly, partly.list()) is None
