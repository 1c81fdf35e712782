"""Changes to bytes that a careless reader would stumble over."""

import random
import struct

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 69, 70, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1)
WIDE = (*NUMBERS, 2**33, 2**54, 2**54 + 1, 2**55, 2**56, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def mutate(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return the bytes with one to four changes, each of a random kind."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        _change(rng, raw, others)
    return bytes(raw)


def _change(rng: random.Random, raw: bytearray, others: list[bytes]) -> None:
    size = len(raw)
    if not size:
        raw += rng.randbytes(rng.randrange(40))
        return
    at = rng.randrange(size)
    match rng.randrange(9):
        case 0:
            raw[at] ^= 1 << rng.randrange(8)
        case 1:
            raw[at] = rng.randrange(256)
        case 2 | 3:  # a whole number, usually where one is
            width = rng.choice((2, 4, 8, 8))
            at = at // rng.choice((1, 4, 8)) * rng.choice((1, 4, 8)) % size
            value = rng.choice(WIDE) & (2 ** (8 * width) - 1)
            raw[at : at + width] = value.to_bytes(width, "little")
        case 4:  # a number that is nearly right
            at = min(at, max(0, size - 8))
            if size >= 8:
                (value,) = struct.unpack_from("<Q", raw, at)
                value = (value + rng.choice((-8, -2, -1, 1, 2, 8, size))) % 2**64
                raw[at : at + 8] = struct.pack("<Q", value)
        case 5:
            del raw[at : at + rng.choice((1, 4, 8, size))]
        case 6:
            raw[at:at] = rng.choice((bytes(8), rng.randbytes(rng.randrange(1, 17))))
        case 7:  # repeat or move a piece
            piece = raw[at : at + rng.choice((8, 32, 128))]
            where = rng.randrange(size)
            raw[where : where + (len(piece) if rng.random() < 0.5 else 0)] = piece
        case 8:  # a piece of another file
            other = rng.choice(others)
            if other:
                start = rng.randrange(len(other))
                raw[at : at + rng.choice((8, 64))] = other[start : start + rng.choice((8, 64, 512))]
