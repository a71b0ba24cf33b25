"""Batches that unpack to more than tierd opens: which were seen, and what becomes of them. Pure.

A few kilobytes may unpack to any size, or to millions of tiny records, and the checksum is right: a producer can write
it. tierd does not know the keys
in such a batch, so these rules keep every record right without them:

- The batch stays as it is, byte for byte. It supersedes nothing, and nothing in it is superseded.
- A record that goes because a later one has its key may go: what supersedes it stays, and hides the batch's older
  records of that key too.
- A tombstone behind the batch stays, however old: an older record of its key may be in the batch, and would be back.
  For the same reason a record behind the batch does not expire by its own timestamp.
- A record before the batch is judged as always: what it hides is older than itself, and not in the batch.
- Data of an aborted transaction goes unopened, as always.
- Where keys are to be erased the batch stops its group, for they may be in it; a request may say that the whole batch
  goes instead.
"""

from dataclasses import dataclass, replace

from tierd.log import BatchHeader
from tierd.pipeline.rewriting.fate import Fate, is_protected
from tierd.pipeline.rewriting.rules import RewriteRules


@dataclass(slots=True)
class UnreadBatches:
    """The batches of a log that were not opened.

    Attributes:
        count: how many.
        first_offset: base offset of the first of them, of a legacy entry its last one; None without any.
    """

    count: int = 0
    first_offset: int | None = None

    def note(self, batch: BatchHeader) -> None:
        """Take the next one, in the order of the log."""
        self.count += 1
        if self.first_offset is None:
            self.first_offset = batch.base_offset


def rules_behind(unread: UnreadBatches, rules: RewriteRules) -> RewriteRules:
    """Return the rules that hold behind the batches that were not opened; the same without any."""
    return rules if unread.first_offset is None else replace(rules, unread_from=unread.first_offset)


def unread_fate(batch: BatchHeader, rules: RewriteRules) -> Fate | None:
    """Return what becomes of a batch of live data that cannot be opened; None where the rules do not cover it.

    A compaction covers only what was noted, for the rules about what lies behind depend on that: by its first stage
    where groups are rewritten side by side, or by the pass itself where it goes through the whole log in order.
    """
    if rules.removes_unread:
        return Fate.EMPTIED if is_protected(batch, rules) else Fate.REMOVED
    if rules.erased_keys:
        return None
    if rules.compacts and (rules.unread_from is None or batch.base_offset < rules.unread_from):
        return None
    return Fate.COPIED
