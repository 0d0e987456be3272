"""Quirks of changes: answers without a Location, texts instead of resources, and other forms of bodies."""

from dataclasses import replace
from typing import Any

from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer
from drawbar.mocks.redfish.quirks.quirk import ALL, Form, Forward, Quirk, Setting


def _creates(asked: Asked) -> bool:
    """Return whether a request makes a resource, but no session."""
    is_action = "/Actions/" in asked.path
    return asked.method == "POST" and not is_action and asked.resource != paths.SESSIONS


async def _create_without_location(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    is_made = _creates(asked) and answer.status == 201
    return replace(answer, status=200).with_header("Location", None) if is_made else answer


async def _create_in_silence(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    is_made = _creates(asked) and answer.status in {200, 201}
    return replace(answer, status=204, body=None).with_header("Location", None) if is_made else answer


async def _delete_with_text(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    if asked.method != "DELETE" or answer.status != 204:
        return answer
    text = f"{asked.resource.rpartition('/')[2]} has been deleted"
    return make_answer(text, kind="text/html; charset=utf-8", headers=dict(answer.headers))


async def _demand_type(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    body = asked.json()
    if _creates(asked) and isinstance(body, dict) and "@odata.type" not in body:
        return make_answer("Attribute not found: @odata.type.", status=400, kind="text/html; charset=utf-8")
    return await forward(asked)


async def _take_top_endpoints(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.method != "PATCH" or not asked.resource.startswith(f"{paths.ZONES}/"):
        return await forward(asked)
    body: Any = asked.json()
    listed = body.get("Endpoints") if isinstance(body, dict) else None
    return await forward(asked.with_json({"Links": {"Endpoints": listed or []}}))


async def _keep_last(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    body: Any = asked.json()
    links = body.get("Links") if isinstance(body, dict) else None
    if asked.method != "PATCH" or not isinstance(links, dict):
        return await forward(asked)
    kept = {name: _ends(value) if isinstance(value, list) else value for name, value in links.items()}
    return await forward(asked.with_json({**body, "Links": kept}))


def _ends(members: list[Any]) -> list[Any]:
    return [*members[:1], *members[1:][-1:]]


async def _show_state(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    if asked.method != "PATCH" or answer.status != 204:
        return answer
    shown = await forward(Asked(method="GET", path=asked.resource, headers=asked.headers))
    return shown if shown.status == 200 else answer


QUIRKS = (
    Quirk(
        name="last-member",
        text="PATCH keeps only the first and last member of an array.",
        seen="",
        forms=frozenset({Form.PORT, Form.COMPOSITION}),
        wrap=_keep_last,
    ),
    Quirk(
        name="typed-creations",
        text="POST needs `@odata.type`, or is refused with 400 and a text.",
        seen="Sunfish",
        forms=ALL - {Form.APPLIANCE},
        wrap=_demand_type,
    ),
    Quirk(
        name="top-endpoints",
        text="A zone takes endpoints at the top of the body; Links removes all.",
        seen="Intel's PNC simulator",
        forms=frozenset({Form.PORT}),
        wrap=_take_top_endpoints,
    ),
    Quirk(
        name="patch-200",
        text="PATCH returns 200 and the resource.",
        seen="NEC hw-emulator-reference, OFMF-Reference, Intel's PNC simulator",
        wrap=_show_state,
    ),
    Quirk(
        name="post-200",
        text="POST returns 200 without Location.",
        seen="Sunfish, OFMF-Reference",
        wrap=_create_without_location,
    ),
    Quirk(
        name="post-204",
        text="POST returns 204 without Location.",
        seen="DMTF/Redfish-Mockup-Server #35, #58",
        wrap=_create_in_silence,
    ),
    Quirk(
        name="delete-text",
        text="DELETE returns 200 and a text.",
        seen="Sunfish, OFMF-Reference",
        wrap=_delete_with_text,
    ),
)
