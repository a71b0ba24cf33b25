"""Authorizer: which principals may see and read topics, and use consumer groups."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tierd.config import EndpointAccessRule, full_match
from tierd.serve.kafka.access.quarantine import Quarantine
from tierd.serve.kafka.request_context import RequestContext

LONGEST_NAME: Final = 255
"""Characters of the longest name of a topic or a group that a pattern is tried on. Kafka's topics have 249 at most."""
_REMEMBERED_PRINCIPALS: Final = 1000


class Authorizer(Protocol):
    """Answers to all questions of access. Calls return at once."""

    def may_describe_topic(self, principal: str, topic: str) -> bool:
        """Return True if ``principal`` may see the topic, its partitions, settings and offsets."""

    def may_read_topic(self, principal: str, topic: str) -> bool:
        """Return True if ``principal`` may read records of the topic."""

    def may_use_group(self, principal: str, group: str) -> bool:
        """Return True if ``principal`` may see, join, commit and delete the group."""

    def is_quarantined(self, context: RequestContext) -> bool:
        """Return True if the client is held back: its groups and fetches are answered with a retriable error."""


@dataclass(frozen=True, slots=True)
class _Granted:
    """Patterns of all rules of one principal."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]


class RuleAuthorizer:
    """Authorizer by the rules of the file. Without any rule, everything is allowed. Threads may ask as well."""

    def __init__(self, rules: Callable[[], Sequence[EndpointAccessRule]], quarantine: Quarantine) -> None:
        """Ask ``rules`` for the rules in force at each question; a new list of rules takes effect at once."""
        self._rules = rules
        self._quarantine = quarantine
        self._seen: tuple[Sequence[EndpointAccessRule], OrderedDict[str, _Granted]] = ((), OrderedDict())

    def may_describe_topic(self, principal: str, topic: str) -> bool:
        """Return True if a rule of the principal names the topic."""
        return self.may_read_topic(principal, topic)

    def may_read_topic(self, principal: str, topic: str) -> bool:
        """Return True if a rule of the principal names the topic."""
        return _names(self._of(principal).topics, topic)

    def may_use_group(self, principal: str, group: str) -> bool:
        """Return True if a rule of the principal names the group."""
        return _names(self._of(principal).groups, group)

    def is_quarantined(self, context: RequestContext) -> bool:
        """Return True if the listener or the principal is held back."""
        return self._quarantine.is_held(listener=context.listener, principal=context.principal)

    def _of(self, principal: str) -> _Granted:
        rules, (seen, remembered) = self._rules(), self._seen
        if rules is not seen:  # a thread that has begun with the former rules goes on with what was granted by them
            remembered = OrderedDict()
            self._seen = rules, remembered
        granted = remembered.get(principal)
        if granted is None:
            granted = remembered[principal] = _granted_by(rules, principal)
            if len(remembered) > _REMEMBERED_PRINCIPALS:
                remembered.popitem(last=False)
        return granted


def _granted_by(rules: Sequence[EndpointAccessRule], principal: str) -> _Granted:
    if not rules:
        return _Granted((".*",), (".*",))
    own = [rule for rule in rules if full_match(rule.principals, principal)]
    return _Granted(
        tuple(dict.fromkeys(pattern for rule in own for pattern in rule.topics)),
        tuple(dict.fromkeys(pattern for rule in own for pattern in rule.groups)),
    )


def _names(patterns: Sequence[str], name: str) -> bool:
    return ".*" in patterns or (len(name) <= LONGEST_NAME and full_match(patterns, name))
