r"""Scripts that Redis runs, and the form of their arguments and answers.

Four keys, all with the hash tag ``{tierd}`` and so in one slot, since a batch may touch any row::

    {tierd}:format   the version of this form
    {tierd}:rows     a sorted set of members ``key NUL value``, all of score 0, so that it is in byte order of the keys
    {tierd}:changes  the keys written last, by the number of the write
    {tierd}:seq      the number of the last write

A scan reads pages, and other clients write in between. So a scan begins by noting ``seq`` and ends with a call that
reads anew, in one moment, every key that was written since: the result is the content of the store in that moment.
Redis runs one script at a time, so each script is kept short.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha1
from itertools import accumulate, pairwise
from typing import Final

from tierd.metadata.kv.key_value_store import Batch, DeletePrefix, Expect, Precondition, Put, Write

FORMAT_KEY: Final = "{tierd}:format"
FORMAT: Final = b"1"
ROWS: Final = "{tierd}:rows"
CHANGES: Final = "{tierd}:changes"
SEQ: Final = "{tierd}:seq"
CHANGES_KEPT: Final = 20_000  # a scan during which more keys were written begins again
NUL: Final = b"\0"


class Script:
    """Lua text and the name under which Redis remembers it."""

    def __init__(self, text: str) -> None:
        self.text = _COMMON + text
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


_COMMON: Final = f"""
local ROWS, CHANGES, SEQ, KEPT = KEYS[1], KEYS[2], KEYS[3], {CHANGES_KEPT}
local function row_of(key)
  return redis.call('ZRANGEBYLEX', ROWS, '[' .. key .. '\\0', '(' .. key .. '\\1', 'LIMIT', 0, 1)[1]
end
local function packed(strings)
  local lengths = {{}}
  for i, text in ipairs(strings) do lengths[i] = #text end
  return redis.call('GET', SEQ) or '0', table.concat(lengths, ','), table.concat(strings)
end
"""

KEYS: Final = (ROWS, CHANGES, SEQ)

# The number of batches; per batch how many rows it expects and how many it writes, then these as pairs of a key and
# a member, empty where there is, or shall be, no row. A member NUL means that any row is expected, or that all rows are
# removed of which the key is the beginning. Answers the number of each refused batch, its key and that row.
# The first write of a script is one that Redis refuses when it is out of memory or a replica: it is all or nothing.
APPLY: Final = Script("""
local at, refused, number = 2, {}, nil
local function removed(prefix, rows)
  local past = prefix:sub(1, -2) .. string.char(prefix:byte(-1) + 1)
  local found = redis.call('ZRANGEBYLEX', ROWS, '[' .. prefix, '(' .. past)
  if #found == 0 then return end
  local last = redis.call('INCRBY', SEQ, #found)
  for i, row in ipairs(found) do
    local key = row:sub(1, row:find('\\0', 1, true) - 1)
    redis.call('ZADD', CHANGES, last - #found + i, key)
    redis.call('ZREM', ROWS, row)
    rows[key] = ''
  end
end
for batch = 1, tonumber(ARGV[1]) do
  local writes_at = at + 2 + 2 * tonumber(ARGV[at])
  local next_at = writes_at + 2 * tonumber(ARGV[at + 1])
  local held, rows = true, {}
  for i = at + 2, writes_at - 1, 2 do
    local row = row_of(ARGV[i]) or ''
    rows[ARGV[i]] = row
    local expected = ARGV[i + 1]
    if held and row ~= expected and not (expected == '\\0' and row ~= '') then
      held = false
      refused[#refused + 1] = batch
      refused[#refused + 1] = ARGV[i]
      refused[#refused + 1] = row
    end
  end
  if held then
    for i = writes_at, next_at - 1, 2 do
      local key, member = ARGV[i], ARGV[i + 1]
      local row = member ~= '\\0' and (rows[key] or row_of(key) or '') or member
      if member == '\\0' then
        removed(key, rows)
      elseif row ~= member then
        number = (number or redis.call('INCRBY', SEQ, #ARGV) - #ARGV) + 1
        redis.call('ZADD', CHANGES, number, key)
        if member ~= '' then redis.call('ZADD', ROWS, 0, member) end
        if row ~= '' then redis.call('ZREM', ROWS, row) end
        rows[key] = member
      end
    end
  end
  at = next_at
end
if redis.call('ZCARD', CHANGES) > KEPT then redis.call('ZREMRANGEBYRANK', CHANGES, 0, -KEPT - 1) end
return refused
""")

# Every command of the others, without an effect: what the server or its access list refuses is refused at once, not in
# the middle of a batch, where there is no way back.
PROBE: Final = Script("""
packed({})
redis.call('ZREM', ROWS, '')
redis.call('ZREMRANGEBYRANK', CHANGES, 1, 0)
redis.call('ZADD', CHANGES, 'XX', 0, '')
redis.call('INCRBY', SEQ, 0)
redis.call('ZRANGE', CHANGES, 0, 0)
redis.call('ZRANGEBYSCORE', CHANGES, 0, 0)
return {row_of(''), redis.call('ZCARD', CHANGES)}
""")

# From, to, and at most how many rows. Answers the last write's number, and the rows.
PAGE: Final = Script("""
return {packed(redis.call('ZRANGEBYLEX', ROWS, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3]))}
""")

# Keys. Answers the last write's number, and the rows that exist.
LOOK_UP: Final = Script("""
local rows = {}
for _, key in ipairs(ARGV) do rows[#rows + 1] = row_of(key) end
return {packed(rows)}
""")

# A number, and at most how many keys. Answers false when it is too long ago, or not yet: after a failover that lost
# writes. Otherwise the number up to which it goes, the keys written since, each followed by its row or nothing, and the
# last write's number.
CHANGED: Final = Script("""
if tonumber(redis.call('GET', SEQ) or '0') < tonumber(ARGV[1]) then return false end
local oldest = redis.call('ZRANGE', CHANGES, 0, 0, 'WITHSCORES')[2]
if redis.call('ZCARD', CHANGES) >= KEPT and tonumber(oldest) > tonumber(ARGV[1]) + 1 then return false end
local found = redis.call('ZRANGEBYSCORE', CHANGES, '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local answer = {}
for i = 1, #found, 2 do
  answer[i] = found[i]
  answer[i + 1] = row_of(found[i]) or ''
end
local seq, lengths, bytes = packed(answer)
return {#found > 0 and found[#found] or seq, lengths, bytes, seq}
""")


def apply_arguments(batches: Sequence[Batch]) -> list[bytes | int]:
    """Return the arguments of ``APPLY``."""
    arguments: list[bytes | int] = [len(batches)]
    for batch in batches:
        arguments += (len(batch.expect), len(batch.writes))
        for expect in batch.expect:
            arguments += _expectation(expect)
        for write in batch.writes:
            arguments += _change(write)
    return arguments


def range_of(prefix: str) -> tuple[bytes, bytes]:
    """Return the arguments of ``PAGE`` for every key that begins with ``prefix``."""
    if not prefix:
        return b"-", b"+"
    return b"[" + prefix.encode(), b"(" + (prefix[:-1] + chr(ord(prefix[-1]) + 1)).encode()


def unpacked(lengths: bytes, data: bytes) -> list[bytes]:
    """Return the strings that a script packed into one, which is cheaper for both sides than one answer each."""
    if not lengths:
        return []
    ends = accumulate(map(int, lengths.split(b",")), initial=0)
    return [data[start:end] for start, end in pairwise(ends)]


def value_in(member: bytes) -> bytes | None:
    """Return the value of a row; None for no row."""
    return member.partition(NUL)[2] if member else None


def rows_of(members: Iterable[bytes]) -> dict[str, bytes]:
    """Return members as keys and values, in their order."""
    return {key.decode(): value for key, _, value in (member.partition(NUL) for member in members)}


def _expectation(expect: Precondition) -> tuple[bytes, bytes]:
    return expect.key.encode(), _member(expect.key, expect.value) if isinstance(expect, Expect) else NUL


def _change(write: Write) -> tuple[bytes, bytes]:
    if isinstance(write, DeletePrefix):
        return write.prefix.encode(), NUL
    return write.key.encode(), _member(write.key, write.value if isinstance(write, Put) else None)


def _member(key: str, value: bytes | None) -> bytes:
    return b"" if value is None else key.encode() + NUL + value
