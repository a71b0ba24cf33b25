"""AppendOrigin: who appends, which decides what is checked (log-format 4.1; Kafka: AppendOrigin)."""

from enum import Enum


class AppendOrigin(Enum):
    """Where the records of an append come from."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    RAFT_LEADER = "raft leader"

    @property
    def assigns_offsets(self) -> bool:
        """Whether the log numbers the records; otherwise they come numbered by another leader."""
        return self in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)

    @property
    def checks_sequences(self) -> bool:
        """Whether an idempotent producer's batches have to follow each other."""
        return self is AppendOrigin.CLIENT

    @property
    def fences(self) -> bool:
        """Whether an old epoch is refused; a replica takes what its leader has accepted."""
        return self is not AppendOrigin.REPLICATION
