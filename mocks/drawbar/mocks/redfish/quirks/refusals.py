"""Quirks of refusals: the service's error messages in other forms, and other statuses."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer
from drawbar.mocks.redfish.quirks.quirk import Forward, Quirk, Setting


def _words(answer: Answer) -> str:
    """Return the text of a refusal."""
    error = (answer.resource or {}).get("error", {})
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _in_words(form: Callable[[str], Any], kind: str) -> Callable[[Asked, Forward, Setting], Any]:
    """Return the wrapping that shows the words of each refusal of a change in another form."""

    async def wrap(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
        answer = await forward(asked)
        if answer.status < 400 or asked.is_read or not (words := _words(answer)):
            return answer
        reported = make_answer(form(words), status=answer.status, kind=kind)
        for name, value in answer.headers.items():
            reported.headers.setdefault(name, value)
        return reported

    return wrap


def _with_status(status: int) -> Callable[[Asked, Forward, Setting], Any]:
    """Return the wrapping that refuses a wrong change with this status."""

    async def wrap(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
        answer = await forward(asked)
        is_wrong = answer.status in {400, 409} and not asked.is_read
        return replace(answer, status=status) if is_wrong else answer

    return wrap


QUIRKS = (
    Quirk(
        name="refusal-406",
        text="A wrong change is refused with 406.",
        seen="NEC hw-emulator-reference",
        wrap=_with_status(406),
    ),
    Quirk(
        name="refusal-422",
        text="A wrong change is refused with 422.",
        seen="Seagate cfm-service",
        wrap=_with_status(422),
    ),
    Quirk(
        name="refusal-text",
        text="A refusal is plain text.",
        seen="Sunfish",
        wrap=_in_words(str, "text/html; charset=utf-8"),
    ),
    Quirk(
        name="refusal-string",
        text="A refusal is a JSON string.",
        seen="Seagate cfm-service, SNIA Swordfish-API-Emulator",
        wrap=_in_words(json.dumps, "application/json"),
    ),
    Quirk(
        name="refusal-message",
        text="A refusal is an object with only a `message`.",
        seen="NEC hw-emulator-reference",
        wrap=_in_words(lambda words: json.dumps({"message": words}), "application/json"),
    ),
    Quirk(
        name="refusal-page",
        text="A refusal is an HTML page with the reason as its title.",
        seen="nginx, Flask",
        wrap=_in_words("<html><head><title>{}</title></head></html>".format, "text/html"),
    ),
)
