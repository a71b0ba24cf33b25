"""A small log dir in Kafka's format that keeps growing, for ``make run``: the broker's half of the show."""
