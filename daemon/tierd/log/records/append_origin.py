"""AppendOrigin: origin of an append, which decides the checks of its records (log-format 4.1; Kafka: AppendOrigin)."""

from enum import Enum


class AppendOrigin(Enum):
    """Origin of the records of an append."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    RAFT_LEADER = "raft leader"

    @property
    def assigns_offsets(self) -> bool:
        """Return True if the log numbers the records; records of other origins come numbered by another leader."""
        return self in (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)

    @property
    def checks_sequences(self) -> bool:
        """Return True if the sequence numbers of an idempotent producer's batches must have no gaps."""
        return self is AppendOrigin.CLIENT

    @property
    def fences(self) -> bool:
        """Return True if an old producer epoch is refused; a replica accepts every batch of its leader."""
        return self is not AppendOrigin.REPLICATION
