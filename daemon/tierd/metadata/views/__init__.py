"""Remote segments of one partition as one immutable value: lookups, changes, epochs and lineage. Decisions only."""
