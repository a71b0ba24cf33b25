"""Schedule: the begins of a repeated job, by a cron expression in a time zone, and its daily pauses.

Wall-clock time is local: at a change of the clocks a time that does not exist is the next one that does, and a
time that comes twice counts twice.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import croniter
from croniter.croniter import CroniterError

_FIELDS: Final = 5
_TIME_OF_DAY: Final = r"([01]\d|2[0-3]):([0-5]\d)"
_LONGEST_WINDOWS: Final = 32  # bound of the search for windows that follow one another without a gap


@dataclass(frozen=True, slots=True)
class PauseWindow:
    """A part of every day, from ``begin`` inclusive to ``end`` exclusive; over midnight unless ``end`` is later."""

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``HH:MM-HH:MM``.

        Raises:
            ValueError: the text has another form, or the window has no length.
        """
        found = re.fullmatch(f"{_TIME_OF_DAY}-{_TIME_OF_DAY}", text)
        if found is None:
            raise ValueError(f"{text!r} is no time of day: write it as 08:00-18:00")
        begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        if begin == end:
            raise ValueError(f"{text!r} begins when it ends")
        return cls(begin, end)

    def end_after(self, moment: datetime) -> datetime | None:
        """Return the end of the window that ``moment`` lies in; None when it lies in none."""
        for days in (-1, 0):
            begin = datetime.combine(moment.date() + timedelta(days=days), self.begin, moment.tzinfo)
            end = datetime.combine(begin.date() + timedelta(days=self.end <= self.begin), self.end, moment.tzinfo)
            if begin.timestamp() <= moment.timestamp() < end.timestamp():
                return end
        return None

    def next_begin(self, moment: datetime) -> datetime:
        """Return the next begin of the window, ``moment`` excluded."""
        today = datetime.combine(moment.date(), self.begin, moment.tzinfo)
        return today if today.timestamp() > moment.timestamp() else today + timedelta(days=1)


class Schedule:
    """Timetable of runs, and the daily windows in which no run may go on. Times are milliseconds since the epoch."""

    def __init__(
        self, expression: str, *, time_zone: str = "UTC", pause_windows: Sequence[str] = (), jitter_s: float = 0.0
    ) -> None:
        """Parse the expression, the time zone and the windows.

        Args:
            expression: five fields, minute to day of the week, or a name such as ``@daily``.
            time_zone: of the expression and the windows, by its name in the time zone database.
            pause_windows: ``HH:MM-HH:MM`` each; a run that falls into a window begins at the end of the window.
            jitter_s: a run begins up to that much later.

        Raises:
            ValueError: one of them cannot be understood, or the expression has no next time.
        """
        self._zone = parse_time_zone(time_zone)
        self._windows = tuple(PauseWindow.parse(text) for text in pause_windows)
        self._jitter_s = jitter_s
        self._expression = expression
        if not expression.startswith("@") and len(expression.split()) != _FIELDS:
            raise ValueError(f"{expression!r} has not the five fields of cron: minute hour day month weekday")
        try:
            self._following(datetime(2024, 1, 1, tzinfo=self._zone))
        except (CroniterError, ValueError, KeyError) as error:
            raise ValueError(f"{expression!r} is no cron expression: {error}") from error

    def next_begin_ms(self, after_ms: int, *, random: Callable[[], float]) -> int:
        """Return the begin of the next run: after ``after_ms``, outside the pause windows; ``random`` is in [0, 1)."""
        due = self._following(self._local(after_ms))
        begin_ms = _ms(due) + int(self._jitter_s * 1000 * random())
        return self.paused_until_ms(begin_ms) or begin_ms

    def paused_until_ms(self, at_ms: int) -> int | None:
        """Return the end of the windows around ``at_ms``, adjoining ones included; None outside of all."""
        moment, until = self._local(at_ms), None
        for _ in range(_LONGEST_WINDOWS):
            ends = [end for window in self._windows if (end := window.end_after(until or moment)) is not None]
            if not ends:
                break
            until = max(ends)
        return None if until is None else _ms(until)

    def next_pause_ms(self, after_ms: int) -> int | None:
        """Return the begin of the next window after ``after_ms``; None without any window."""
        moment = self._local(after_ms)
        return min((_ms(window.next_begin(moment)) for window in self._windows), default=None)

    def _following(self, moment: datetime) -> datetime:
        found = croniter(self._expression, moment).get_next(datetime)
        assert isinstance(found, datetime)
        return found

    def _local(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(self._zone)


def parse_time_zone(name: str) -> ZoneInfo:
    """Return the time zone of that name.

    Raises:
        ValueError: the database has none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone: write a name such as UTC or Europe/Berlin") from error


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
