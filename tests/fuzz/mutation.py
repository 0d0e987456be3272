"""Inputs like a given one, with something wrong."""

import random
import re

_SCALAR = re.compile(rb'"[^"]*"|-?\d+|true|false|null')


def mutate(seed: bytes, tokens: tuple[bytes, ...], choice: random.Random) -> bytes:
    """Return the seed with one to sixteen changes: bytes, fragments, cuts, repeats, and scalars of JSON replaced."""
    data = bytearray(seed)
    for _ in range(choice.choice((1, 1, 2, 4, 16))):
        at = choice.randrange(len(data) + 1)
        match choice.randrange(6):
            case 0 if data:
                data[at % len(data)] = choice.randrange(256)
            case 1:
                data[at:at] = choice.choice(tokens)
            case 2:
                del data[at : at + choice.randrange(1, 32)]
            case 3 if data:
                begin = choice.randrange(len(data))
                data[at:at] = data[begin : begin + choice.randrange(1, 64)]
            case 4:
                del data[at:]
            case _:
                scalars = [match.span() for match in _SCALAR.finditer(data)]
                if scalars:
                    begin, end = choice.choice(scalars)
                    data[begin:end] = choice.choice(tokens)
    return bytes(data)
