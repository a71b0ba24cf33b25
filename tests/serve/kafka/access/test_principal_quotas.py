"""PrincipalQuotas: rates and connections of each principal by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.config import EndpointQuotaRule
from tierd.serve.kafka.access.principal_quotas import PrincipalLimits, PrincipalQuotas, limits_of

ETL, AUDIT = "User:etl", "User:audit"
MIB = 1 << 20


def rule(**keys: object) -> EndpointQuotaRule:
    return EndpointQuotaRule.model_validate(keys)


def quotas(*rules: EndpointQuotaRule) -> PrincipalQuotas:
    return PrincipalQuotas(lambda: rules)


def test_last_rule_that_sets_a_limit_wins() -> None:
    rules = (
        rule(bytes_per_second="10MiB", connections=5),
        rule(principals=["User:e.*"], bytes_per_second="1MiB", requests_per_second=3),
        rule(principals=[AUDIT], connections=1),
    )

    assert limits_of(rules, ETL) == PrincipalLimits(MIB, 3, 5)
    assert limits_of(rules, AUDIT) == PrincipalLimits(10 * MIB, None, 1)
    assert limits_of((), ETL) == PrincipalLimits()


def test_principal_without_limits_never_waits() -> None:
    unlimited = quotas()

    assert [unlimited.record(ETL, 1 << 40, 0.0) for _ in range(100)] == [0] * 100
    assert unlimited.largest_answer_bytes(ETL, 0.0) is None
    assert all(unlimited.connect(ETL, 0.0) for _ in range(1000))


def test_answers_above_the_rate_cost_the_wait_that_brings_the_rate_back() -> None:
    limited = quotas(rule(bytes_per_second=1000))

    assert limited.record(ETL, 1000, 0.0) == 0
    assert limited.record(ETL, 3000, 0.5) == 3000
    assert limited.throttle_ms(ETL, 2.5) == 1500
    assert limited.throttle_ms(ETL, 4.0) == 0


def test_requests_above_the_rate_cost_a_wait() -> None:
    limited = quotas(rule(requests_per_second=2))

    assert [limited.record(ETL, 0, 0.0) for _ in range(4)] == [0, 0, 500, 1000]


def test_principals_do_not_share_a_limit() -> None:
    limited = quotas(rule(bytes_per_second=1000))
    limited.record(ETL, 100_000, 0.0)

    assert limited.record(AUDIT, 500, 0.0) == 0


def test_new_connection_does_not_escape_the_wait() -> None:
    limited = quotas(rule(bytes_per_second=1000))
    limited.connect(ETL, 0.0)
    limited.record(ETL, 5000, 0.0)
    limited.disconnect(ETL)

    limited.connect(ETL, 0.1)

    assert limited.throttle_ms(ETL, 0.1) == 4000


def test_fetches_that_began_at_the_same_moment_share_the_rate() -> None:
    limited = quotas(rule(bytes_per_second=1000))
    largest, admitted = limited.largest_answer_bytes(ETL, 0.0), 0
    assert largest is not None
    for second in range(120):
        began = [not limited.throttle_ms(ETL, second) for _ in range(100)]  # over as many connections
        admitted += sum(largest for each in began if each and not limited.admit(ETL, largest, second))

    assert admitted <= 1000 * 120 + largest


def test_largest_answer_keeps_the_wait_within_the_time_that_is_remembered() -> None:
    limited = quotas(rule(bytes_per_second=1000))
    largest = limited.largest_answer_bytes(ETL, 0.0)

    assert largest == 10_000
    assert limited.record(ETL, largest, 0.0) == 9000


@given(
    limit=st.integers(1, 10_000),
    requests=st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 100_000)), min_size=1, max_size=40),
)
def test_client_that_waits_as_told_keeps_the_rate_over_any_long_time(
    limit: int, requests: list[tuple[float, int]]
) -> None:
    limited = quotas(rule(bytes_per_second=limit))
    most = limited.largest_answer_bytes(ETL, 0.0)
    assert most is not None
    now_s, total = 0.0, 0
    for pause_s, size in requests:
        now_s += pause_s
        total += min(size, most)
        now_s += limited.record(ETL, min(size, most), now_s) / 1000 + 0.001

    assert total <= limit * (now_s + 1) + 1


def test_wait_of_a_minute_is_the_longest() -> None:
    assert quotas(rule(bytes_per_second=1)).record(ETL, MIB, 0.0) == 60_000


def test_connections_above_the_limit_are_refused_until_one_ends() -> None:
    limited = quotas(rule(connections=2))

    assert [limited.connect(ETL, 0.0) for _ in range(3)] == [True, True, False]
    assert limited.connect(AUDIT, 0.0)
    limited.disconnect(ETL)
    assert limited.connect(ETL, 0.0)
    assert limited.connections(ETL) == 2
    assert limited.connections("User:other") == 0


def test_new_rules_apply_to_what_was_used_before() -> None:
    rules = [(rule(bytes_per_second=1000),), (rule(bytes_per_second=100),), ()]
    limited = PrincipalQuotas(lambda: rules[0])
    assert limited.record(ETL, 1000, 0.0) == 0

    rules.pop(0)
    assert limited.throttle_ms(ETL, 0.0) == 9000
    rules.pop(0)
    assert limited.throttle_ms(ETL, 0.0) == 0


def test_idle_principals_are_forgotten_and_busy_ones_are_not() -> None:
    limited = quotas(rule(bytes_per_second=1000))
    limited.connect(ETL, 0.0)
    limited.record(AUDIT, 5000, 99.0)
    for number in range(5000):
        limited.record(f"User:CN={number}", 1, number / 50)

    assert len(limited) < 2100
    assert limited.connections(ETL) == 1
    assert limited.throttle_ms(AUDIT, 99.0) > 0


def test_more_connections_than_were_counted_cannot_end() -> None:
    limited = quotas()
    limited.connect(ETL, 0.0)
    limited.disconnect(ETL)

    with pytest.raises(AssertionError):
        limited.disconnect(ETL)
