"""The note of a connection or slice: its request, as a text kept by the fabric; pure."""

import json
from dataclasses import dataclass
from typing import Self

from drawbar.fabric import contract

# The start of the text, in a property that other clients write too.
PREFIX = "drawbar:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The request of a connection or slice."""

    request_id: str | None = None
    mark: str | None = None

    @classmethod
    def from_text(cls, content: object, *, prefix: str = "") -> Self:
        """Return the note in a text that begins with the prefix, or an empty note for other texts."""
        if not isinstance(content, str) or not content.startswith(prefix):
            return cls()
        try:
            parsed = json.loads(content.removeprefix(prefix))
        except (ValueError, RecursionError):
            return cls()
        if not isinstance(parsed, dict):
            return cls()
        return cls(request_id=_text(parsed.get("request")), mark=_text(parsed.get("mark")))

    @classmethod
    def from_request(cls, request: contract.AttachRequest | contract.CreateSliceRequest) -> Self:
        """Return the note of the connection or slice that the request makes."""
        return cls(request_id=request.request_id, mark=request.mark)

    def text(self, *, prefix: str = "") -> str:
        """Return the note in the form that the fabric keeps."""
        content = {"request": self.request_id} | ({} if self.mark is None else {"mark": self.mark})
        return prefix + json.dumps(content, separators=(",", ":"))


def _text(content: object) -> str | None:
    if not isinstance(content, str) or not content:
        return None
    return content if len(content.encode(errors="replace")) <= contract.STRING_BYTES else None
