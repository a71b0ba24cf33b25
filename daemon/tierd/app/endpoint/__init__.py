"""The read endpoint over one tier: the logs and the cluster that it serves, and its composition."""
