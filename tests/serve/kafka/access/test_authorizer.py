"""RuleAuthorizer: full-match patterns, rules that add up, and the default without rules."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tierd.config import EndpointAccessRule, EndpointQuarantineSettings
from tierd.serve.kafka.access.authorizer import RuleAuthorizer
from tierd.serve.kafka.access.quarantine import Quarantine, QuarantineRelease

ETL, AUDIT = "User:etl", "User:audit"


def rule(**keys: list[str]) -> EndpointAccessRule:
    return EndpointAccessRule.model_validate(keys)


def authorizer(*rules: EndpointAccessRule) -> RuleAuthorizer:
    return _asked(lambda: rules)


def _asked(rules: Callable[[], Sequence[EndpointAccessRule]]) -> RuleAuthorizer:
    nothing = EndpointQuarantineSettings()
    return RuleAuthorizer(
        rules, Quarantine(lambda: nothing, Path("/nowhere"), release=QuarantineRelease(), clock=FakeClock())
    )


def test_without_rules_everything_is_allowed() -> None:
    asked = authorizer()

    assert asked.may_read_topic(ETL, "orders")
    assert asked.may_describe_topic("User:ANONYMOUS", "orders")
    assert asked.may_use_group(ETL, "any group")


def test_rules_of_a_principal_add_up() -> None:
    asked = authorizer(
        rule(principals=[ETL], topics=["orders"], groups=["etl-.*"]),
        rule(principals=["User:.*"], topics=["public\\..*"]),
    )

    assert [asked.may_read_topic(ETL, topic) for topic in ("orders", "public.a", "secret")] == [True, True, False]
    assert [asked.may_read_topic(AUDIT, topic) for topic in ("orders", "public.a")] == [False, True]
    assert [asked.may_use_group(ETL, group) for group in ("etl-1", "audit")] == [True, False]
    assert not asked.may_use_group(AUDIT, "etl-1")


def test_one_rule_takes_everything_from_principals_that_no_rule_names() -> None:
    asked = authorizer(rule(principals=[ETL], topics=[".*"], groups=[".*"]))

    assert not asked.may_read_topic("User:ANONYMOUS", "orders")
    assert not asked.may_describe_topic("User:ANONYMOUS", "orders")
    assert not asked.may_use_group("User:ANONYMOUS", "group")


@pytest.mark.parametrize("topic", ["orders2", "my-orders", "orders\n", "Orders", "orders.", ""])
def test_pattern_matches_the_whole_name(topic: str) -> None:
    assert not authorizer(rule(topics=["orders"])).may_read_topic(ETL, topic)


@pytest.mark.parametrize("principal", ["etl", "User:etl2", "user:etl", "User:etl\n", "XUser:etl"])
def test_pattern_matches_the_whole_principal(principal: str) -> None:
    assert not authorizer(rule(principals=[ETL], topics=["orders"])).may_read_topic(principal, "orders")


@given(st.text(max_size=20), st.text(max_size=20))
def test_plain_names_are_matched_alone(allowed: str, asked_for: str) -> None:
    import re  # noqa: PLC0415 - the oracle of this test

    asked = authorizer(rule(topics=[re.escape(allowed)]))

    assert asked.may_read_topic(ETL, asked_for) == (allowed == asked_for)


def test_pattern_is_not_tried_on_a_name_that_no_topic_has() -> None:
    asked = authorizer(rule(topics=["(a+)+b"]))

    assert not asked.may_read_topic(ETL, "a" * 100_000)


def test_new_rules_take_effect_at_the_next_question() -> None:
    rules = [(rule(topics=["orders"]),), (rule(topics=["other"]),)]
    nothing = EndpointQuarantineSettings()
    quarantine = Quarantine(lambda: nothing, Path("/nowhere"), release=QuarantineRelease(), clock=FakeClock())
    asked = RuleAuthorizer(lambda: rules[0], quarantine)
    assert asked.may_read_topic(ETL, "orders")

    rules.pop(0)

    assert not asked.may_read_topic(ETL, "orders")
    assert asked.may_read_topic(ETL, "other")


def test_memory_of_principals_is_bounded() -> None:
    asked = authorizer(rule(topics=["orders"]))
    for number in range(3000):
        assert asked.may_read_topic(f"User:CN={number}", "orders")

    assert len(asked._seen[1]) <= 1000


def test_thread_that_began_before_a_reload_leaves_no_right_of_the_former_rules() -> None:
    class ReloadedMeanwhile(list[EndpointAccessRule]):
        def __iter__(self) -> Iterator[EndpointAccessRule]:
            in_force[0] = [rule(topics=["other"])]
            assert asked.may_read_topic(ETL, "other")
            return super().__iter__()

    in_force: list[list[EndpointAccessRule]] = [ReloadedMeanwhile([rule(topics=["orders"])])]
    asked = _asked(lambda: in_force[0])

    assert asked.may_read_topic(ETL, "orders")  # as before the reload
    assert not asked.may_read_topic(ETL, "orders")
    assert asked.may_read_topic(ETL, "other")
