"""Mutations for the replay in the test run: without coverage guidance, and the same ones every time."""

import random
from collections.abc import Iterator

_INTERESTING = [bytes(count) for count in (1, 4, 8, 64)] + [
    number.to_bytes(size, "big", signed=number < 0)
    for size in (1, 2, 4, 8)
    for number in (-1, 1, 1 << (8 * size - 2), (1 << (8 * size - 1)) - 1, -(1 << (8 * size - 1)))
]


def mutations(seeds: list[bytes], *, count: int, seed: int) -> Iterator[bytes]:
    """Yield ``count`` inputs near the seeds, or made of two of them."""
    choice = random.Random(seed)
    for _ in range(count):
        data = bytearray(choice.choice(seeds))
        for _ in range(choice.choice((1, 1, 1, 2, 3, 8))):
            _mutate(data, choice, seeds)
        yield bytes(data)


def _mutate(data: bytearray, choice: random.Random, seeds: list[bytes]) -> None:
    at = choice.randrange(len(data) + 1)
    match choice.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << choice.randrange(8)
        case 1 if at < len(data):
            data[at] = choice.randrange(256)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + choice.randrange(16)]
        case 4:
            piece = choice.choice(_INTERESTING)
            data[at : at + len(piece)] = piece
        case 5:
            data[at:at] = choice.choice(_INTERESTING)
        case _:
            other = choice.choice(seeds)
            start = choice.randrange(len(other) + 1)
            data[at:] = other[start : start + 4096]
