"""Answers about the cluster, its topics and their offsets, and the refusals of everything that writes."""

from tierd.serve.kafka.answers.answer_handlers import answer_handlers
from tierd.serve.kafka.answers.partition_lookups import LookupLimits

__all__ = ["LookupLimits", "answer_handlers"]
