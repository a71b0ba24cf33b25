"""The log of a led partition as push replication reads it, and the memory that its records take."""
