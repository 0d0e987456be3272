"""Quirks of URIs: pages, slashes, other authorities, redirects, and wrong links."""

from dataclasses import replace

from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer, make_refusal
from drawbar.mocks.redfish.quirks.quirk import (
    LINK,
    WITH_FABRIC,
    Forward,
    Quirk,
    Setting,
    is_resource,
    map_uris,
)
from drawbar.mocks.redfish.tree import ROOT, Body

PAGE_MEMBERS = 2
AUTHORITY = "https://fm-01.mgmt.example"
_MOVED = '<html><head><title>Moved</title></head><body><a href="{}">Moved</a></body></html>'


async def _page(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    skip = asked.query.get("$skip", "0")
    kept_query = {name: value for name, value in asked.query.items() if name != "$skip"}
    answer = await forward(replace(asked, query=kept_query))
    body, first = answer.resource, int(skip) if skip.isdigit() else 0
    if body is None or not isinstance(body.get("Members"), list) or len(body["Members"]) <= PAGE_MEMBERS:
        return answer
    following = first + PAGE_MEMBERS
    page: Body = {**body, "Members": body["Members"][first:following]}
    if following < len(body["Members"]):
        kept = "".join(f"&{name}={value}" for name, value in kept_query.items())
        page["Members@odata.nextLink"] = f"{asked.path}?$skip={following}{kept}"
    return replace(answer, body=page)


def _add_slash(uri: str) -> str:
    return uri if uri.endswith("/") else f"{uri}/"


async def _end_in_slashes(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if not asked.path.endswith("/"):
        return make_answer(status=308, headers={"Location": _add_slash(asked.path) + _query(asked)})
    plain = asked.with_json(map_uris(asked.json(), lambda uri: uri.rstrip("/"))) if asked.content else asked
    answer = await forward(replace(plain, path=asked.path if asked.resource == ROOT else asked.resource))
    answer = replace(answer, body=map_uris(answer.body, _add_slash))
    location = answer.headers.get("Location")
    return answer.with_header("Location", _add_slash(location)) if location else answer


async def _begin_with_capital(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    plain = asked.with_json(map_uris(asked.json(), _plain)) if asked.content else asked
    answer = await forward(replace(plain, path=_plain(asked.path)))
    answer = replace(answer, body=map_uris(answer.body, _capital))
    location = answer.headers.get("Location")
    return answer.with_header("Location", _capital(location)) if location else answer


def _capital(uri: str) -> str:
    return f"/Redfish/{uri.removeprefix('/redfish/')}" if uri.startswith("/redfish/") else uri


def _plain(uri: str) -> str:
    return f"/redfish/{uri.removeprefix('/Redfish/')}" if uri.startswith("/Redfish/") else uri


def _query(asked: Asked) -> str:
    pairs = "&".join(f"{name}={value}" for name, value in asked.query.items())
    return f"?{pairs}" if pairs else ""


async def _redirect_login(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.method == "POST" and asked.path == paths.SESSIONS:
        return make_answer(status=307, headers={"Location": f"{paths.SESSIONS}/"})
    return await forward(asked)


async def _redirect_root(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.path == f"{ROOT}/":
        return make_answer(_MOVED.format(ROOT), status=301, kind="text/html", headers={"Location": ROOT})
    return await forward(asked)


async def _miss_root(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.path == ROOT:
        return make_answer("<html><title>404 Not Found</title></html>", status=404, kind="text/html")
    return await forward(asked)


async def _name_locations(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    location = answer.headers.get("Location", "")
    is_made = answer.status in {200, 201, 202} and location.startswith("/")
    return answer.with_header("Location", AUTHORITY + location) if is_made else answer


async def _name_links(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    plain = asked
    if asked.content:
        plain = asked.with_json(map_uris(asked.json(), lambda uri: uri.removeprefix(AUTHORITY)))
    answer = await forward(plain)
    return replace(
        answer, body=map_uris(answer.body, lambda uri: AUTHORITY + uri if uri.startswith("/") else uri)
    )


async def _show_wrong_ids(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    body = answer.resource
    if body is None or "Members" not in body or not is_resource(body):
        return answer
    return replace(answer, body={**body, LINK: f"{ROOT}/{asked.resource.rpartition('/')[2]}"})


async def _hide_zones_link(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    answer = await forward(asked)
    body, name = answer.resource, _joins(setting)
    if body is None or not asked.is_read:
        return answer
    if asked.resource == paths.FABRIC:
        return replace(answer, body={key: value for key, value in body.items() if key != name})
    if asked.resource == f"{paths.FABRIC}/{name}" and body.get("Members") == []:
        return make_refusal(404, "Base.1.18.ResourceMissingAtURI", f"There is no resource at {asked.path}.")
    return answer


async def _mislead(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    names = ("Endpoints", _joins(setting))
    if asked.resource in {f"{ROOT}/{name}" for name in names}:
        return make_answer("<html><title>404 Not Found</title></html>", status=404, kind="text/html")
    answer = await forward(asked)
    body = answer.resource
    if body is None or asked.resource != paths.FABRIC:
        return answer
    return replace(answer, body={**body, **{name: {LINK: f"{ROOT}/{name}"} for name in names}})


def _joins(setting: Setting) -> str:
    """Return the name of the collection that connects endpoints."""
    return "Connections" if setting.configuration.method == "connections" else "Zones"


async def _see_other(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    return replace(answer, status=303, body=None) if answer.status == 202 and not asked.is_read else answer


async def _name_task(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    body = answer.resource
    if answer.status != 202 or body is None or asked.is_read or LINK not in body:
        return answer
    return answer.with_header("Location", body[LINK])


async def _forget_monitor(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    if asked.resource.startswith(f"{ROOT}/TaskService/TaskMonitors/") and answer.status != 202:
        return make_refusal(404, "Base.1.18.ResourceMissingAtURI", f"There is no resource at {asked.path}.")
    return answer


QUIRKS = (
    Quirk(
        name="slashes",
        text="URIs end with a slash; requests without it are redirected with 308.",
        seen="ansible/ansible #45513, HewlettPackard/oneview-redfish-toolkit #374",
        wrap=_end_in_slashes,
    ),
    Quirk(
        name="capital-prefix",
        text="URIs begin with /Redfish.",
        seen="",
        wrap=_begin_with_capital,
    ),
    Quirk(
        name="session-redirect",
        text="A login without a final slash is redirected with 307.",
        seen="bb-Ricardo/check_redfish #187",
        wrap=_redirect_login,
    ),
    Quirk(
        name="root-redirect",
        text="The root with a slash is redirected, with an HTML page.",
        seen="Seagate cfm-service",
        wrap=_redirect_root,
    ),
    Quirk(
        name="root-with-slash",
        text="The root without a slash is 404.",
        seen="Sunfish",
        wrap=_miss_root,
    ),
    Quirk(
        name="pages",
        text=f"Collections have pages of {PAGE_MEMBERS} members; the next is the path with a query.",
        seen="DMTF/Redfish-Mockup-Server #43, DMTF/python-redfish-library #112",
        wrap=_page,
    ),
    Quirk(
        name="foreign-locations",
        text="Location is an absolute URI with the manager's own host name.",
        seen="stmcginnis/gofish #77, DMTF/python-redfish-library #93",
        wrap=_name_locations,
    ),
    Quirk(
        name="foreign-links",
        text="Links are absolute URIs with the manager's own host name.",
        seen="allowed by DSP8010: a link is a `uri-reference` (odata-v4.json)",
        wrap=_name_links,
    ),
    Quirk(
        name="wrong-ids",
        text="Collections name a wrong URI as their own.",
        seen="Sunfish",
        wrap=_show_wrong_ids,
    ),
    Quirk(
        name="no-zones-link",
        text="The fabric has no link to zones or connections; empty ones are 404.",
        seen="Sunfish",
        forms=WITH_FABRIC,
        wrap=_hide_zones_link,
    ),
    Quirk(
        name="wrong-links",
        text="The fabric's links to collections are 404; the schema's paths work.",
        seen="Sunfish",
        forms=WITH_FABRIC,
        wrap=_mislead,
    ),
    Quirk(
        name="see-other",
        text="A change with a task is 303, with the task's monitor.",
        seen="DMTF/python-redfish-library #98",
        wrap=_see_other,
    ),
    Quirk(
        name="task-location",
        text="Location names the task in place of its monitor.",
        seen="Dell iDRAC (dell/iDRAC-Redfish-Scripting #160)",
        wrap=_name_task,
    ),
    Quirk(
        name="forgotten-monitors",
        text="The monitor of an ended task is 404.",
        seen="Dell iDRAC (dell/iDRAC-Redfish-Scripting #160, #275)",
        wrap=_forget_monitor,
    ),
)
