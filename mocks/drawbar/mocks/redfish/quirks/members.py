"""Quirks of collections: members that cannot be read, arrays in another form, and `$expand` that fails."""

from collections.abc import Callable
from dataclasses import replace

from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer, make_refusal
from drawbar.mocks.redfish.quirks.quirk import LINK, Forward, Quirk, Setting, is_resource
from drawbar.mocks.redfish.tree import ROOT, Body

_SICK = ("/PCIeDevices/", "/Processors/", "/Drives/", "/Memory/", "/MemoryChunks/")
_DEVICES = (paths.ENDPOINTS, paths.BLOCKS)


def _is_sick(asked: Asked, setting: Setting) -> bool:
    """Return whether a request reads the resource of the last device."""
    suffix = f"/{setting.last_device}"
    return asked.is_read and asked.resource.endswith(suffix) and any(each in asked.resource for each in _SICK)


def _covers_sick(asked: Asked) -> bool:
    """Return whether a request reads a collection expanded that has the last device as a member."""
    return "$expand" in asked.query and any(asked.resource.endswith(each.rstrip("/")) for each in _SICK)


async def _break(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    if _is_sick(asked, setting) or _covers_sick(asked):
        return make_refusal(
            500, "Base.1.12.InternalError", "The request failed due to an internal service error."
        )
    return await forward(asked)


async def _load(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    if _is_sick(asked, setting) or _covers_sick(asked):
        return make_answer("<html><body>Loading ...</body></html>", kind="text/html")
    return await forward(asked)


async def _hang(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    if _is_sick(asked, setting) or _covers_sick(asked):
        await setting.closed.wait()
    return await forward(asked)


async def _refuse_expansion(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if "$expand" in asked.query:
        text = "Querying is not supported on the requested resource."
        return make_refusal(400, "Base.1.12.QueryNotSupportedOnResource", text)
    return _announce_expand(await forward(asked), asked)


async def _break_expansion(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if _covers_sick(asked):
        return make_refusal(500, "Base.1.12.InternalError", "internal error")
    return _announce_expand(await forward(asked), asked)


async def _ignore_expansion(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    rest = {name: value for name, value in asked.query.items() if name != "$expand"}
    return _announce_expand(await forward(replace(asked, query=rest)), asked)


def _announce_expand(answer: Answer, asked: Asked) -> Answer:
    """Return the service root with `$expand` among its features."""
    body = answer.resource
    if body is None or asked.resource != ROOT:
        return answer
    offered = {"ExpandAll": True, "Levels": True, "Links": True, "NoLinks": True, "MaxLevels": 6}
    return replace(answer, body={**body, "ProtocolFeaturesSupported": {"ExpandQuery": offered}})


def _change_collection(answer: Answer, change: Callable[[Body], Body]) -> Answer:
    """Return the answer, a collection changed."""
    body = answer.resource
    if body is None or not is_resource(body) or not isinstance(body.get("Members"), list):
        return answer
    return replace(answer, body=change(body))


async def _move_members(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        rest = {name: value for name, value in body.items() if not name.startswith("Members")}
        return rest | {"Links": {"Members": body["Members"]}}

    return _change_collection(await forward(asked), change)


async def _drop_members(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.resource not in _DEVICES:
        return await forward(asked)
    return _change_collection(await forward(asked), lambda body: {LINK: body[LINK], "Name": "starting up"})


async def _count_more(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    if asked.resource not in _DEVICES:
        return answer
    return _change_collection(answer, lambda body: {**body, "Members@odata.count": len(body["Members"]) + 2})


async def _unpack_single(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        return {**body, "Members": body["Members"][0]} if len(body["Members"]) == 1 else body

    return _change_collection(await forward(asked), change)


async def _add_empty(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    def change(body: Body) -> Body:
        return {**body, "Members": [{LINK: ""}, *body["Members"]]}

    return _change_collection(await forward(asked), change)


QUIRKS = (
    Quirk(
        name="broken-member",
        text="The last device and its expanded collection are 500.",
        seen="dsx-ai-factory/nv-redfish #185, ibm-openbmc/bmcweb #667",
        wrap=_break,
    ),
    Quirk(
        name="html-member",
        text="The last device is an HTML page, with 200.",
        seen="Supermicro (influxdata/telegraf #18250, #19289)",
        wrap=_load,
    ),
    Quirk(
        name="hanging-member",
        text="The last device and its expanded collection are never answered.",
        seen="a card silent to its manager",
        wrap=_hang,
    ),
    Quirk(
        name="refused-expand",
        text="`$expand` is announced, and refused with 400.",
        seen="Fujitsu iRMC (bb-Ricardo/check_redfish #20), ibm-openbmc/bmcweb #962",
        wrap=_refuse_expansion,
    ),
    Quirk(
        name="broken-expand",
        text="`$expand` is announced, and is 500 if a member is sick.",
        seen="OpenBMC (ibm-openbmc/bmcweb #667)",
        wrap=_break_expansion,
    ),
    Quirk(
        name="ignored-expand",
        text="`$expand` is announced, and changes nothing.",
        seen="Sunfish (its mock-ups sc24-PoC)",
        wrap=_ignore_expansion,
    ),
    Quirk(
        name="empty-members",
        text="Collections have an empty link among the members.",
        seen="ODIM-Project/ODIM #494",
        wrap=_add_empty,
    ),
    Quirk(
        name="object-member",
        text="A single member is an object, without the array.",
        seen="DMTF/libredfish #27",
        wrap=_unpack_single,
    ),
    Quirk(
        name="links-members",
        text="Collections have their members below Links.",
        seen="DMTF Redfish-Interface-Emulator",
        wrap=_move_members,
    ),
    Quirk(
        name="no-members",
        text="The endpoints or resource blocks have no Members.",
        seen="Dell iDRAC (bb-Ricardo/check_redfish #86)",
        wrap=_drop_members,
    ),
    Quirk(
        name="count-above-members",
        text="The count of endpoints or resource blocks is too high.",
        seen="DMTF/python-redfish-library #112",
        wrap=_count_more,
    ),
)
