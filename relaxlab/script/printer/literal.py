r"""Literals as they stand in TVMScript: floats, strings, dictionaries.

Examples
--------
>>> float_text(0.1), float_text(1e10), string_text('say "hi"')
('0.10000000000000001', '10000000000.0', '"say \\"hi\\""')
"""

import math

__all__ = ["float_text", "string_text"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def float_text(value: float) -> str:
    """Return a float with 17 significant digits; a whole one in full, with ``.0``.

    The infinities and NaN are strings, to be wrapped by a constructor: ``T.float32("inf")``.
    """
    if math.isnan(value):
        return '"nan"'
    if math.isinf(value):
        return '"inf"' if value > 0 else '"-inf"'
    return f"{value:.1f}" if value.is_integer() else f"{value:.17g}"


def string_text(value: str) -> str:
    """Return a string in double quotes, control characters escaped."""
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return (
        f"\\x{code:02X}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )
