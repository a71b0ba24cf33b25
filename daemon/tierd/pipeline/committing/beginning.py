"""Beginning: creates the outputs of groups, as rows that are COPY_SEGMENT_STARTED."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from tierd.clock import Clock
from tierd.model import RemoteLogSegmentId
from tierd.pipeline.committing.open_outputs import OpenOutput, OpenOutputs
from tierd.pipeline.committing.output_checks import begun_output
from tierd.pipeline.committing.patient_metadata import PatientMetadata
from tierd.pipeline.committing.replacing import OutputStorage, Replacing
from tierd.pipeline.committing.round import GroupState, PartitionRound
from tierd.pipeline.planning import Output
from tierd.remote import KEY_SEED_BYTES


class Beginning:
    """First step of outputs: describes them, and begins those of one partition together, all of them or none."""

    def __init__(
        self,
        metadata: PatientMetadata,
        storage: OutputStorage,
        *,
        replacing: Replacing,
        outputs: OpenOutputs,
        clock: Clock,
        new_id: Callable[[], UUID],
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._replacing = replacing
        self._outputs = outputs
        self._clock = clock
        self._new_id = new_id

    async def describe(self, round_: PartitionRound, group: int) -> Output | str:
        """Return the output that is to be written for a group, or why none may be; nothing is stored."""
        if (problem := await self._replacing.inputs_problem(round_, group)) is not None:
            return problem
        work = round_.work
        claim = self._metadata.manager.view(work.partition).claim
        assert claim is not None, "what this broker leads is claimed"
        segment = RemoteLogSegmentId(work.partition, self._new_id())
        try:
            row = begun_output(segment, work.group_inputs(group), claim, now_ms=self._clock.now_ms())
        except ValueError as error:
            return str(error)
        row = replace(row, custom_metadata=self._storage.custom_metadata(row))
        seed = secrets.token_bytes(KEY_SEED_BYTES)
        return Output(index=work.index, group=group, metadata=row, key_seed=seed)

    async def begin(self, round_: PartitionRound, outputs: Sequence[Output]) -> str | None:
        """Write the rows of outputs, which are open then; return why that failed, None when it did not."""
        opened = [OpenOutput(output, round_) for output in outputs]
        for each in opened:
            self._outputs.add(each)  # before its row is there: a sweep must not meet one without the other
        rows = [output.metadata for output in outputs]
        outcome = await self._replacing.write(round_, lambda: self._metadata.manager.begin_outputs(rows))
        for each in opened:
            if outcome.problem is None:
                round_.move(each.output.group, GroupState.OPEN)
            else:
                self._outputs.forget(each)
        return outcome.problem
