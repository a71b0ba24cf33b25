"""Drivers of the transcripts, by the folder of their transcripts."""

from collections.abc import Callable

from tests.transcripts.drivers.cleaning import Cleaning
from tests.transcripts.drivers.copying import Copying
from tests.transcripts.drivers.expiration import Expiration
from tests.transcripts.drivers.groups import ConsumerGroupOfClients
from tests.transcripts.drivers.leadership import LeadershipEvents
from tests.transcripts.drivers.planning import Planning
from tests.transcripts.drivers.pushing import PushingLeader
from tests.transcripts.drivers.rebuild import Rebuild
from tests.transcripts.transcript import Driver

DRIVERS: dict[str, Callable[[], Driver]] = {
    "cleaning": Cleaning,
    "copying": Copying,
    "expiration": Expiration,
    "groups": ConsumerGroupOfClients,
    "leadership": LeadershipEvents,
    "planning": Planning,
    "pushing": PushingLeader,
    "rebuild": Rebuild,
}
