"""The standard streams of the program: no foreign text reaches a terminal or a log unfiltered.

Names, messages and errors come from fabric managers, nodes, tenants and files. Within `guard_output`, everything written
to stdout or stderr passes `printable`, so a control sequence is shown instead of obeyed. Only `console` writes the
codes of our own tables, and it cleans each piece of text first.

Source: ECMA-48 (control sequences); Unicode TR 36 section 3.5 (bidirectional overrides).
"""

import codecs
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

if TYPE_CHECKING:
    from rich import console as rich_console

# Not printable are control characters, the overrides of a line's direction, and halves of surrogate pairs.
_PLAIN = bytes((*b"\n\t", *range(0x20, 0x7F)))
_NOT_ASCII = re.compile(r"[^\n\x20-\x7e]")

# A question mark is itself the mark of an unchecked finding.
_MARKS = {"✗": "x", "✓": "+", "·": "-"}
_SUBSTITUTES = "drawbar.substitutes"


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """Return one ASCII character for each character outside of the encoding."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    left = error.object[error.start : error.end]
    return "".join(_MARKS.get(letter, "?") for letter in left), error.end


codecs.register_error(_SUBSTITUTES, _substitute)


def printable(text: str) -> str:
    """Return the text with a question mark in place of each character that cannot be printed; lines and tabs stay."""
    if text.isascii() and _is_plain(text.encode()):
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)


def one_line(content: object) -> str:
    """Return foreign text as `printable` does, with a question mark in place of line ends and tabs, too."""
    return printable(str(content)).replace("\n", "?").replace("\t", "?")


def ascii_json(raw: bytes) -> str:
    """Return the JSON document with all but ASCII escaped, so that no text in it needs cleaning."""
    if _is_plain(raw):
        return raw.decode()
    return _NOT_ASCII.sub(lambda letter: json.dumps(letter[0])[1:-1], raw.decode())


def _is_plain(raw: bytes) -> bool:
    # On a large document, this takes a tenth of the time of a pattern.
    return not raw.translate(None, _PLAIN)


class Stream:
    """A text stream that prints only printable characters; it passes everything else to the underlying stream."""

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream

    def write(self, text: str) -> int:
        """Write the text, cleaned; return its length."""
        self.raw.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines, cleaned."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _Nothing(io.TextIOBase):
    """In place of a missing or closed standard stream: it is empty, and forgets all writes."""

    def readline(self, _size: int = -1, /) -> str:  # type: ignore[override]  # typeshed has the bytes of its base
        return ""

    def write(self, text: str, /) -> int:
        return len(text)


@contextlib.contextmanager
def guard_output() -> Iterator[None]:
    """Make stdout and stderr print only printable characters, in any encoding, while the context lasts.

    A missing or closed standard stream is empty, or prints nothing.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    stdin, stdout, stderr = (
        cast("TextIO", _Nothing()) if stream is None or stream.closed else stream for stream in before
    )
    for stream in (stdout, stderr):
        # A character outside the encoding is written as its number.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.stdin, sys.stdout, sys.stderr = stdin, Stream(stdout), Stream(stderr)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def console(width: int | None = None) -> "rich_console.Console":
    """Return a `rich` console on stdout that draws its own codes and cleans everybody's text.

    With NO_COLOR it draws neither colours nor bold.
    """
    from rich import console as rich_console
    from rich import segment

    class Cleaning(rich_console.Console):
        """A console whose pieces of text are printable."""

        def render(
            self,
            renderable: "rich_console.RenderableType",
            options: "rich_console.ConsoleOptions | None" = None,
        ) -> Iterable[segment.Segment]:
            """Yield the drawn pieces, each cleaned unless it is a code of the console's own."""
            for piece in super().render(renderable, options):
                # A character outside the encoding becomes exactly one other, so that columns stay in place.
                text = (
                    piece.text
                    if piece.control
                    else printable(piece.text).encode(encoding, _SUBSTITUTES).decode(encoding)
                )
                yield piece if text == piece.text else segment.Segment(text, piece.style)

    # A Stream would remove the console's own codes as well.
    file = sys.stdout.raw if isinstance(sys.stdout, Stream) else sys.stdout
    encoding = file.encoding or "utf-8"
    # With NO_COLOR, rich itself would still draw bold.
    colours: Literal["auto"] | None = None if rich_console.Console().no_color else "auto"
    return Cleaning(file=file, width=width, color_system=colours, highlight=False, markup=False, emoji=False)
