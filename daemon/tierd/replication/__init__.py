"""Push replication: the leader sends each append, the tail that is not rolled included, to the logs of standbys."""
