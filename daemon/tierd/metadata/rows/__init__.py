"""Rows of one partition as the store has them: their keys, their values, and the claim in the partition row."""
