"""Scene: the host on which the commands of a page run, and the commands that run elsewhere or nowhere."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.scenarios.installation import Settings
from tests.transcripts.pages.broker_host import BrokerHost

Step = Callable[[BrokerHost], None]


@dataclass(frozen=True, slots=True)
class OtherTest:
    """Test that takes commands from a page and runs them.

    Attributes:
        test: its node id.
        names: what its file, or one that it imports, has to name: the function that reads the page, and headings.
        taken: returns the commands that this function returns, one a line.
    """

    test: str
    names: tuple[str, ...]
    taken: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Scene:
    """Commands of one page.

    Attributes:
        opening: brings the host into the state that the page presupposes; None where no command runs on a host.
        settings: of the configuration of the host.
        has_plain_spark: tierd finds a Spark whose jobs run without Spark.
        before: steps in front of commands, by their text or by ``heading: text``: what the page tells in words.
        values: values by the names in whose place the reader puts his own, such as an id.
        shown: patterns of the lines that the transcript shows, by command; all lines by default.
        in_any_order: commands whose lines the transcript sorts: their order is that of random ids.
        elsewhere: tests that run commands of the page.
        not_run: reasons by the begin of a command, which is a pattern; they go before those for all pages.
    """

    opening: Step | None = None
    settings: Settings = field(default_factory=dict)
    has_plain_spark: bool = False
    before: Mapping[str, Step] = field(default_factory=dict)
    values: Mapping[str, Callable[[BrokerHost], str]] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    in_any_order: frozenset[str] = frozenset()
    elsewhere: Sequence[OtherTest] = ()
    not_run: Mapping[str, str] = field(default_factory=dict)

    def filled(self, text: str, host: BrokerHost) -> str:
        """Return a command with values of the host for what the page leaves to the reader."""
        for name, value in self.values.items():
            if re.search(rf"\b{name}\b", text):
                text = re.sub(rf"\b{name}\b", value(host), text)
        return text
