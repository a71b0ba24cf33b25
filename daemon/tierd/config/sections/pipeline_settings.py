"""The scheduled Spark job: compaction, merging of small segments, audit."""

from functools import partial
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from tierd.config.places import Location, PlacedFaultsError, require_understood
from tierd.config.section import Settings
from tierd.config.spark_protection import PROTECTION, SECRET, protection_faults
from tierd.config.values import MIB, AbsolutePath, ByteLimit, ByteSize, Duration, OwnPath, Switch, Text, WholeNumber
from tierd.schedule import PauseWindow, Schedule, parse_time_zone


class PipelineSettings(Settings):
    """Schedule of the Spark job, its Spark installation and its limits."""

    enabled: Switch = Field(False, description="true: the daemon starts the job by the schedule; needs the extra spark")
    schedule: Text = Field("0 3 * * *", description="begin of the runs, as a cron expression of five fields")
    time_zone: Text = Field("UTC", description="time zone of schedule and pause_windows, such as Europe/Berlin")
    jitter_s: Duration = Field(
        0.0, alias="jitter", ge=0, description="longest random delay of a run, so that hosts do not begin together"
    )
    pause_windows: tuple[Text, ...] = Field(
        (), description='times of day, such as "08:00-18:00"; no run begins in them, and a running one is ended'
    )
    master: Text = Field(
        "local[2]", description="Spark master: local[N], spark://host:7077, yarn or k8s://https://host:443"
    )
    spark_conf: dict[str, str] = Field({}, description="further settings of Spark, name: value")
    authenticate_secret: SecretStr | None = Field(
        None, description="secret of a standalone Spark cluster; with another master, Spark makes a secret for each run"
    )
    authenticate_secret_file: AbsolutePath | None = Field(
        None, description="file with the secret, in place of the key above"
    )
    java_home: AbsolutePath | None = Field(
        None, description="directory of the Java for Spark; default: JAVA_HOME, or java in PATH"
    )
    local_dir: OwnPath | None = Field(
        None, description="directory of the job's logs and Spark's scratch files; default: pipeline in state_dir"
    )
    driver_memory_bytes: ByteSize = Field(
        1024 * MIB,
        alias="driver_memory",
        ge=512 * MIB,
        description="heap of the driver; with local[N] it is the only heap",
    )
    executor_memory_bytes: ByteSize = Field(
        1024 * MIB,
        alias="executor_memory",
        ge=512 * MIB,
        description="heap of each executor, with another master than local[N]",
    )
    nice: WholeNumber = Field(
        10, ge=0, le=19, description="nice value of the job; a higher value leaves more processor time to the broker"
    )
    io_class: Literal["none", "best-effort", "idle"] = Field(
        "idle", description="ionice class of the job; idle uses a disk only when no other process does"
    )
    max_bytes_per_run: ByteLimit = Field(None, gt=0, description="limit of the bytes of segments that one run rewrites")
    timeout_s: Duration = Field(
        6 * 3600.0, alias="timeout", gt=0, description="time limit of a run; tierd ends a run that takes longer"
    )
    stop_timeout_s: Duration = Field(
        15.0, alias="stop_timeout", gt=0, description="time that a run has to end after a request; then tierd kills it"
    )
    retries: WholeNumber = Field(
        2, ge=0, le=10, description="number of times that tierd repeats a failed run, with backoff"
    )
    compact: Switch = Field(True, description="true: compact topics whose cleanup policy has compact")
    merge: Switch = Field(True, description="true: merge neighbouring small segments of all topics")
    merge_below_bytes: ByteSize = Field(
        64 * MIB, alias="merge_below", gt=0, description="size below which a segment counts as small"
    )
    audit_bytes: ByteSize = Field(
        256 * MIB,
        ge=0,
        description="bytes of segments that a run verifies, a different sample in each run; 0: no audit",
    )

    def timetable(self) -> Schedule:
        """Return the schedule of runs and pauses."""
        return Schedule(
            self.schedule, time_zone=self.time_zone, pause_windows=self.pause_windows, jitter_s=self.jitter_s
        )

    def protected_conf(self) -> dict[str, str]:
        """Return what keeps a session to its own processes, then ``spark_conf``. It may hold a secret."""
        secret = self.authenticate_secret.get_secret_value() if self.authenticate_secret else ""
        return {**PROTECTION, **({SECRET: secret} if secret else {}), **self.spark_conf}

    @model_validator(mode="after")
    def _schedule_is_understood(self) -> "PipelineSettings":
        require_understood({("schedule",): lambda: Schedule(self.schedule)})
        return self

    @model_validator(mode="after")
    def _time_zone_is_understood(self) -> "PipelineSettings":
        require_understood({("time_zone",): lambda: parse_time_zone(self.time_zone)})
        return self

    @model_validator(mode="after")
    def _pause_windows_are_understood(self) -> "PipelineSettings":
        windows = enumerate(self.pause_windows)
        require_understood({("pause_windows", i): partial(PauseWindow.parse, window) for i, window in windows})
        return self

    @model_validator(mode="after")
    def _session_is_protected(self) -> "PipelineSettings":
        faults: list[tuple[Location, str]] = []
        for name, problem in protection_faults(self.master, self.protected_conf()):
            location: Location = ("authenticate_secret",) if name == SECRET else ("spark_conf", name)
            faults.append((location, problem))
        if faults:
            raise PlacedFaultsError(faults)
        return self
