"""The promises between the endpoint and what it serves: the cluster as clients see it, and one log of a partition."""
