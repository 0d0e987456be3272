"""Whose connection it is, written into a property of the service that a client may choose; pure."""

import json
from dataclasses import dataclass
from typing import Any, Self

from drawbar.fabric import contract

PREFIX = "drawbar:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Which request made a connection.

    Attributes:
        request_id: of the attach.
        mark: of the attach.
    """

    request_id: str | None = None
    mark: str | None = None

    @classmethod
    def from_text(cls, content: Any) -> Self:
        """Return the note in a property; an empty one where there is none, or it is another client's text."""
        if not isinstance(content, str) or not content.startswith(PREFIX):
            return cls()
        try:
            parsed = json.loads(content.removeprefix(PREFIX))
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(parsed, dict):
            return cls()
        return cls(request_id=_text(parsed.get("request")), mark=_text(parsed.get("mark")))

    @classmethod
    def from_request(cls, request: contract.AttachRequest) -> Self:
        """Return the note of a connection that the request makes."""
        return cls(request_id=request.request_id, mark=request.mark)

    def text(self) -> str:
        """Return the note as the property has it."""
        content = {"request": self.request_id} | ({} if self.mark is None else {"mark": self.mark})
        return PREFIX + json.dumps(content, separators=(",", ":"))


def _text(content: Any) -> str | None:
    is_short = isinstance(content, str) and len(content.encode(errors="replace")) <= contract.STRING_BYTES
    return content if is_short and content else None
