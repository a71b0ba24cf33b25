"""Drills: restores into a scratch directory, which prove that the tier comes back."""

from pydantic import Field, model_validator

from tierd.config.places import PlacedFaultsError, require_understood
from tierd.config.section import Settings
from tierd.config.values import MIB, ByteLimit, Duration, OwnPath, Rate, Text, WholeNumber
from tierd.schedule import Schedule, parse_time_zone


class DrillSettings(Settings):
    """Drills: restores of a rotating sample of partitions into a scratch directory, which prove that they come back."""

    schedule: Text | None = Field(
        None, description='begin of the drills, as a cron expression of five fields, such as "30 4 * * *"'
    )
    broker_schedule: Text | None = Field(
        None,
        description="begin of the drills of the whole broker, which restore all its partitions into one log dir, as a "
        'cron expression of five fields, such as "0 2 1 * *"',
    )
    time_zone: Text = Field("UTC", description="time zone of the schedules, such as Europe/Berlin")
    jitter_s: Duration = Field(
        0.0, alias="jitter", ge=0, description="longest random delay of a drill, so that hosts do not begin together"
    )
    partitions: WholeNumber = Field(
        3, ge=1, le=100_000, description="number of partitions of one drill; the next drill takes others"
    )
    scratch_dir: OwnPath | None = Field(
        None,
        description="directory in which partitions are restored one at a time, outside the log dirs; default: drill in "
        "state_dir",
    )
    max_bytes: ByteLimit = Field(
        10 * 1024 * MIB,
        gt=0,
        description="limit of the bytes that one drill restores; a drill names a partition that has more, and skips it",
    )
    max_bytes_per_second: Rate = Field(
        32 * MIB, gt=0, description="limit of the rate at which a drill reads from the tier"
    )
    command: tuple[Text, ...] = Field(
        (),
        description="program and arguments that test a restored log dir and end with 0 if it is right; the log dir and "
        "the partition follow as arguments",
    )
    command_timeout_s: Duration = Field(
        600.0, alias="command_timeout", gt=0, description="time limit of command; tierd ends one that takes longer"
    )

    def timetable(self) -> Schedule | None:
        """Return the schedule of drills; None without one."""
        if self.schedule is None:
            return None
        return Schedule(self.schedule, time_zone=self.time_zone, jitter_s=self.jitter_s)

    def broker_timetable(self) -> Schedule | None:
        """Return the schedule of drills of the whole broker; None without one."""
        if self.broker_schedule is None:
            return None
        return Schedule(self.broker_schedule, time_zone=self.time_zone, jitter_s=self.jitter_s)

    @model_validator(mode="after")
    def _schedule_is_understood(self) -> "DrillSettings":
        if (schedule := self.schedule) is not None:
            require_understood({("schedule",): lambda: Schedule(schedule)})
        if (of_broker := self.broker_schedule) is not None:
            require_understood({("broker_schedule",): lambda: Schedule(of_broker)})
        return self

    @model_validator(mode="after")
    def _time_zone_is_understood(self) -> "DrillSettings":
        require_understood({("time_zone",): lambda: parse_time_zone(self.time_zone)})
        return self

    @model_validator(mode="after")
    def _command_is_a_path(self) -> "DrillSettings":
        if self.command and not self.command[0].startswith("/"):
            raise PlacedFaultsError([(("command", 0), f"{self.command[0]!r} is not absolute: write the whole path")])
        return self
