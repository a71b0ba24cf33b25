"""One run with all parts but Spark: a job that speaks to its leader like the real one, and then ends in any way."""

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.remote_segments import PARTITION, STARTED
from tests.pipeline.committing.lab import COMPACTED, NOTHING_HIDDEN, LeaderLab
from tierd.errors import PipelineError, SparkMissingError
from tierd.metadata import MetadataKeyFactory
from tierd.model import TopicPartition, uuid_to_text
from tierd.pipeline.committing import LeaderClient, PartitionRound, RunStatistics, RunTally
from tierd.pipeline.jobs.exit_codes import JobExit
from tierd.pipeline.pipeline_errors import LeaderChannelError
from tierd.pipeline.planning import Candidate, WorkKind
from tierd.pipeline.running.leasing import PartitionLeases
from tierd.pipeline.running.run_history import RunOutcome
from tierd.pipeline.running.run_progress import RunProgress
from tierd.pipeline.running.spark_process import JobProcess
from tierd.pipeline.running.spark_run import SparkRun, SparkRunSettings, sweep_runs

Talk = Callable[[LeaderClient], JobExit]

RUN_ID = uuid_to_text(UUID(int=7))
AGAIN_ID = uuid_to_text(UUID(int=8))


class Job:
    """``JobProcess`` that is a thread: it connects, talks, and ends with the exit code of its talk."""

    def __init__(self, talk: Talk, *, says: str = "") -> None:
        self._talk = talk
        self._says = says
        self.asked_to_stop = threading.Event()

    async def run(self, socket: Path, log_file: Path, *, stop_timeout_s: float) -> int:
        log_file.write_text(self._says)
        try:
            return await asyncio.to_thread(self._connected, socket)
        finally:
            self.asked_to_stop.set()

    def _connected(self, socket: Path) -> JobExit:
        try:
            with LeaderClient.connect(socket) as leader:
                return self._talk(leader)
        except LeaderChannelError:
            return JobExit.LEADER_GONE


class Lab:
    """Partition of three segments of which the first two are a group, and the run over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leader = LeaderLab(folder)
        self.candidates = [PARTITION]
        self.audit_bytes = 0
        self.stop_timeout_s = 5.0
        self.after: list[tuple[str, int, RunStatistics]] = []
        self.progress = RunProgress(run_id=RUN_ID, trigger="command", attempt=1, began_ms=0)

    def leases(self, holder: str) -> PartitionLeases:
        keys = MetadataKeyFactory("cluster")
        return PartitionLeases(self.leader.rows, keys, holder=holder, clock=self.leader.clock)

    def run(self, job: JobProcess | Exception) -> SparkRun:
        async def find(names: Sequence[TopicPartition] | None) -> list[Candidate]:
            del names
            return [self.leader.candidate(COMPACTED, partition=partition) for partition in self.candidates]

        async def new_job(scratch: Path) -> JobProcess:
            assert scratch.is_dir()
            if isinstance(job, Exception):
                raise job
            return job

        async def after_run(run_id: str, rounds: Sequence[PartitionRound], statistics: RunStatistics) -> None:
            self.after.append((run_id, len(rounds), statistics))

        return SparkRun(
            self.leader.leader,
            planner=self.leader.leader_over(self.leader.storage),
            candidates=find,
            leases=self.leases("us"),
            new_job=new_job,
            settings=SparkRunSettings(
                directory=self.folder / "pipeline",
                max_bytes=None,
                audit_bytes=self.audit_bytes,
                stop_timeout_s=self.stop_timeout_s,
            ),
            after_run=after_run,
        )

    async def do(self, job: JobProcess | Exception) -> None:
        await self.run(job)(self.progress, None)

    def commits(self, *groups: int, then: JobExit = JobExit.DONE) -> Talk:
        """Return talk that has these groups of the only partition replaced."""
        loop = asyncio.get_running_loop()

        def talk(leader: LeaderClient) -> JobExit:
            order = leader.order()
            for output in leader.begin(0, groups).outputs:
                leader.progress("rewriting", done=output.group, total=len(order.partitions[0].groups))
                manifest = asyncio.run_coroutine_threadsafe(self.leader.write(output), loop).result(30)
                assert leader.written(output, manifest, NOTHING_HIDDEN).committed
            if then is JobExit.DONE:
                for group in range(len(order.partitions[0].groups)):
                    if group not in groups:
                        leader.unchanged(0, group)
                leader.done({})
            return then

        return talk

    async def assert_over(self) -> None:
        """Check that the run left no scratch file, protected segment, lease or output, and another can begin."""
        assert not list((self.folder / "pipeline" / "runs").glob("*"))
        assert not self.leader.being_copied
        assert not self.leader.in_state(STARTED)
        assert self.leader.leader.order is None
        async with self.leases("another").held(self.candidates) as (held, _):
            assert held == self.candidates


@pytest.fixture
async def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    await lab.leader.copy_tier(0, 10, 20)
    return lab


async def test_run_commits_the_output_of_the_job_and_cleans_up(lab: Lab) -> None:
    await lab.do(Job(lab.commits(0)))
    assert lab.leader.readable() == [(0, 19), (20, 29)]
    progress = lab.progress
    tally = RunTally(partitions=1, groups_replaced=1, groups_unchanged=1, bytes_before=200, bytes_after=50)
    assert (progress.tally, progress.stage) == (tally, "done")
    assert not progress.problems
    assert progress.log_file == str(lab.folder / "pipeline" / "logs" / f"{RUN_ID}.log")
    ((run_id, rounds, statistics),) = lab.after
    assert (run_id, rounds, statistics.committed) == (RUN_ID, 1, 1)
    await lab.assert_over()


async def test_job_that_fails_half_way_keeps_its_commits_and_its_last_lines_are_reported(lab: Lab) -> None:
    job = Job(lab.commits(0, then=JobExit.FAILED), says="one\ntwo\nout of memory\n")
    with pytest.raises(PipelineError, match=r"exit code 1: one \| two \| out of memory") as caught:
        await lab.do(job)
    assert caught.value.remedy == f"see {lab.progress.log_file}"
    assert lab.leader.readable() == [(0, 19), (20, 29)]
    assert lab.progress.tally.groups_replaced == 1
    await lab.assert_over()


async def test_job_that_fails_with_an_open_output_leaves_the_group_unchanged(lab: Lab) -> None:
    def talk(leader: LeaderClient) -> JobExit:
        leader.begin(0, [0])
        return JobExit.FAILED

    with pytest.raises(PipelineError, match="exit code 1"):
        await lab.do(Job(talk))
    assert lab.leader.readable() == [(0, 9), (10, 19), (20, 29)]
    assert len(lab.leader.abandoned) == 1
    await lab.assert_over()


async def test_failed_group_is_a_problem_of_the_run_and_the_others_are_processed(lab: Lab) -> None:
    def talk(leader: LeaderClient) -> JobExit:
        leader.failed(0, 0, "damaged at byte 7")
        leader.unchanged(0, 1)
        leader.done({})
        return JobExit.DONE

    await lab.do(Job(talk))
    (problem,) = lab.progress.problems
    assert problem == f"{PARTITION}, group 0: damaged at byte 7"
    assert lab.progress.tally == RunTally(partitions=1, groups_failed=1, groups_unchanged=1)
    await lab.assert_over()


async def test_job_that_does_not_connect_is_reported_with_its_exit_code(lab: Lab) -> None:
    class Silent(Job):
        def _connected(self, socket: Path) -> JobExit:
            return JobExit.USAGE

    with pytest.raises(PipelineError, match="exit code 2"):
        await lab.do(Silent(lab.commits(0)))
    await lab.assert_over()


async def test_job_that_cannot_be_started_fails_the_run_with_the_reason(lab: Lab) -> None:
    with pytest.raises(SparkMissingError, match="no Java"):
        await lab.do(SparkMissingError("no Java", remedy="install one"))
    assert lab.leader.readable() == [(0, 9), (10, 19), (20, 29)]
    await lab.assert_over()


async def test_unwritable_directory_fails_the_run_and_changes_no_segment(lab: Lab) -> None:
    (lab.folder / "pipeline").write_text("in the way")
    with pytest.raises(PipelineError, match=r"pipeline cannot be used: .*Not a directory") as caught:
        await lab.do(AssertionError("no job is started"))
    assert "local_dir" in caught.value.remedy
    assert lab.leader.readable() == [(0, 9), (10, 19), (20, 29)]
    (lab.folder / "pipeline").unlink()
    await lab.assert_over()


@pytest.mark.parametrize("were_open", [False, True])
async def test_directories_of_runs_are_restricted_to_the_owner_even_if_they_were_open(
    lab: Lab, *, were_open: bool
) -> None:
    pipeline = lab.folder / "pipeline"
    modes: dict[str, int] = {}

    class Looking(Job):
        async def run(self, socket: Path, log_file: Path, *, stop_timeout_s: float) -> int:
            found = (socket.parent, socket, socket.parents[1], log_file.parent)
            modes.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in found})
            return await super().run(socket, log_file, stop_timeout_s=stop_timeout_s)

    before = os.umask(0o022)
    try:
        for name in ("runs", "logs") if were_open else ():
            (pipeline / name).mkdir(parents=True)
        await lab.do(Looking(lab.commits(0)))
    finally:
        os.umask(before)
    assert modes == {RUN_ID: 0o700, "leader": 0o600, "runs": 0o700, "logs": 0o700}
    assert were_open or stat.S_IMODE(pipeline.stat().st_mode) == 0o700


async def test_run_refuses_a_directory_that_other_users_may_write_into(lab: Lab) -> None:
    (lab.folder / "pipeline").mkdir()
    (lab.folder / "pipeline").chmod(0o777)
    with pytest.raises(PipelineError, match="other users may write into it") as caught:
        await lab.do(AssertionError("no job is started"))
    assert "local_dir" in caught.value.remedy
    await lab.assert_over()


async def test_run_does_not_follow_a_link_in_the_place_of_its_directory(lab: Lab) -> None:
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (lab.folder / "pipeline").mkdir()
    (lab.folder / "pipeline" / "runs").symlink_to(elsewhere)
    with pytest.raises(PipelineError, match="Not a directory"):
        await lab.do(AssertionError("no job is started"))
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    assert list(elsewhere.iterdir()) == []


async def test_job_that_is_done_and_does_not_exit_is_ended(lab: Lab) -> None:
    """Spark hangs while it stops: all outputs are committed, and the run does not wait for its time limit."""

    class Lingering(Job):
        async def run(self, socket: Path, log_file: Path, *, stop_timeout_s: float) -> int:
            try:
                await super().run(socket, log_file, stop_timeout_s=stop_timeout_s)
                await asyncio.Event().wait()
            finally:
                self.ended = True
            raise AssertionError("the event is never set")

    lab.stop_timeout_s = 0.1
    job = Lingering(lab.commits(0))
    await asyncio.wait_for(lab.do(job), 10)
    assert job.ended
    assert lab.leader.readable() == [(0, 19), (20, 29)]
    assert lab.progress.outcome() is RunOutcome.SUCCEEDED
    await lab.assert_over()


async def test_cancelled_run_ends_the_job_and_abandons_open_outputs(lab: Lab) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def talk(leader: LeaderClient) -> JobExit:
        leader.begin(0, [0])
        begun.set()
        go_on.wait(30)
        leader.unchanged(0, 1)
        raise AssertionError("the leader had hung up")

    job = Job(talk)
    running = asyncio.create_task(lab.do(job))
    await eventually(begun.is_set, what="an open output")
    running.cancel()
    await asyncio.wait({running}, timeout=30)
    go_on.set()
    assert running.cancelled()
    assert job.asked_to_stop.is_set()
    assert lab.leader.readable() == [(0, 9), (10, 19), (20, 29)]
    await lab.assert_over()


async def test_partition_that_another_daemon_has_leased_is_not_touched(lab: Lab) -> None:
    async with lab.leases("another").held([PARTITION]):
        await lab.do(AssertionError("no job is started"))
    assert lab.progress.tally == RunTally()
    await lab.assert_over()


async def test_run_without_due_partitions_starts_no_job(lab: Lab) -> None:
    await lab.do(Job(lab.commits(0)))
    again = lab.progress = RunProgress(run_id=AGAIN_ID, trigger="command", attempt=1, began_ms=0)
    await lab.do(AssertionError("no job is started"))
    assert (again.tally.partitions, again.log_file) == (0, "")
    await lab.assert_over()


async def test_run_with_only_an_audit_reports_damage_and_rewrites_no_partition(lab: Lab) -> None:
    def audits(leader: LeaderClient) -> JobExit:
        (work,) = leader.order().partitions
        assert work.kind is WorkKind.AUDIT
        assert leader.begin(0, [0]).refused[0].reason == "an audit replaces nothing"
        leader.failed(0, 0, "the chunk at byte 7 is damaged")
        leader.unchanged(0, 1)
        leader.done({})
        return JobExit.DONE

    await lab.do(Job(lab.commits(0)))
    lab.audit_bytes = 1 << 20
    again = lab.progress = RunProgress(run_id=AGAIN_ID, trigger="command", attempt=1, began_ms=0)
    await lab.do(Job(audits))
    assert again.tally == RunTally(audited_segments=2, audited_bytes=150, damaged_segments=1)
    assert again.outcome() is RunOutcome.PARTLY
    (problem,) = again.problems
    assert f"the chunk at byte 7 is damaged; run tierd verify --deep {PARTITION.topic_partition}" in problem
    run_id, rounds, statistics = lab.after[-1]
    assert (run_id, rounds, statistics.tally.damaged_segments) == (AGAIN_ID, 0, 1)
    assert lab.leader.readable() == [(0, 19), (20, 29)]
    await lab.assert_over()


async def test_plan_begins_no_output_and_protects_no_segment(lab: Lab) -> None:
    run = lab.run(AssertionError("no job is started"))
    for _ in range(2):
        (work,) = (await run.plan(None)).order.partitions
        assert len(work.groups) == 2
    assert not lab.leader.in_state(STARTED)
    await lab.assert_over()


async def test_newest_logs_of_runs_are_kept(lab: Lab) -> None:
    logs = lab.folder / "pipeline" / "logs"
    logs.mkdir(parents=True)
    for age in range(40):
        old = logs / f"old-{age:02}.log"
        old.touch()
        os.utime(old, (1_000_000 - age, 1_000_000 - age))
    await lab.do(Job(lab.commits(0)))
    kept = sorted(path.name for path in logs.iterdir())
    assert kept == [f"{RUN_ID}.log", *(f"old-{age:02}.log" for age in range(29))]


def test_directories_of_runs_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "runs" / "some-run"
    left.mkdir(parents=True)
    (left / "leader").touch()
    (tmp_path / "logs").mkdir()
    sweep_runs(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
