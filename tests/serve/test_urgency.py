from tierd.serve import by_urgency


def test_partitions_that_need_a_person_are_first_and_equal_states_keep_their_order() -> None:
    states = {
        "a": "idle",
        "b": "copying",
        "c": "following",
        "d": "loading",
        "e": "paused",
        "f": "waiting",
        "g": "quarantined",
        "h": "quarantined",
    }

    assert by_urgency(states, state_of=states.__getitem__) == ["g", "h", "f", "e", "d", "b", "a", "c"]
