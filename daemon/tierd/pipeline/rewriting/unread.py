"""Batches that unpack to more than tierd opens: the record of those seen, and their disposition. Pure.

A few kilobytes may unpack to any size, or to millions of tiny records, with a right checksum: any producer can write
such a batch. tierd does not know the keys in the batch. These rules keep every record right without them:

- The batch stays as it is, byte for byte. It supersedes nothing, and nothing in it is superseded.
- A record that a later one supersedes is removed as always: the later record stays, and hides older records of its key
  in the batch, too.
- A tombstone behind the batch stays, however old: an older record of its key may be in the batch, and would be visible
  again. For the same reason a record behind the batch does not expire by its own timestamp.
- A record before the batch is judged as always: the records that it hides are older, and not in the batch.
- Data of an aborted transaction is removed unopened, as always.
- Where keys are to be erased the batch stops its group, for the keys may be in it; a request may have the whole batch
  removed instead.
"""

from dataclasses import dataclass, replace

from tierd.log import BatchHeader
from tierd.pipeline.rewriting.batch_disposition import BatchDisposition, is_protected
from tierd.pipeline.rewriting.rules import RewriteRules


@dataclass(slots=True)
class UnreadBatches:
    """Batches of a log that were not opened.

    Attributes:
        count: number of the batches.
        first_offset: base offset of the first of them, or last offset if it is a legacy entry; None without any.
    """

    count: int = 0
    first_offset: int | None = None

    def note(self, batch: BatchHeader) -> None:
        """Take the next unopened batch, in the order of the log."""
        self.count += 1
        if self.first_offset is None:
            self.first_offset = batch.base_offset


def rules_behind(unread: UnreadBatches, rules: RewriteRules) -> RewriteRules:
    """Return the rules with ``unread_from`` at the first unopened batch; unchanged rules without any."""
    return rules if unread.first_offset is None else replace(rules, unread_from=unread.first_offset)


def unread_disposition(batch: BatchHeader, rules: RewriteRules) -> BatchDisposition | None:
    """Return the disposition of a batch of live data that cannot be opened; None where the rules do not cover it.

    A compaction covers only batches that were noted, for the rules about later records depend on the note. The first
    stage notes them where groups are rewritten side by side, the pass itself where it goes through the whole log.
    """
    if rules.removes_unread:
        return BatchDisposition.EMPTIED if is_protected(batch, rules) else BatchDisposition.REMOVED
    if rules.erased_keys:
        return None
    if rules.compacts and (rules.unread_from is None or batch.base_offset < rules.unread_from):
        return None
    return BatchDisposition.COPIED
