"""Each quirk shows in one raw answer of the service, which is another one without it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from tests.mocks.redfish.test_quirks import ROOT, serve_quirks, zone

from drawbar.mocks.redfish import paths, quirks
from drawbar.mocks.redfish.quirks import Form
from drawbar.mocks.testing import virtualtime

LOGIN = {"username": "u", "password": "p"}
SENT = {"UserName": "u", "Password": "p"}
LAST = f"{ROOT}/Chassis/e1/PCIeDevices/d3"
EXPANDED = "?$expand=.($levels=1)"
ZONE_D1 = zone("h1", "d1")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is looked at, and what it is without the quirk and with it."""

    look: Callable[[Any], Any]
    plain: Any
    odd: Any
    form: Form = Form.PAIR
    setting: dict[str, Any] = field(default_factory=dict)


def answer(pick, method="GET", path=paths.ENDPOINTS, **kinds):
    """Return a look at one answer: `pick` is called with its status, headers and body."""

    async def look(send):
        return pick(*await send(method, path, **kinds))

    return look


def status(method="GET", path=paths.ENDPOINTS, **kinds):
    return answer(lambda code, headers, raw: code, method, path, **kinds)


def header(name, method="GET", path=paths.ENDPOINTS, **kinds):
    return answer(lambda code, headers, raw: headers.get(name), method, path, **kinds)


def body(pick, path=paths.ENDPOINTS):
    return answer(lambda code, headers, raw: pick(json.loads(raw)), path=path)


def block(name, path):
    return body(lambda shown: shown.get(name), path)


async def make_zone(send):
    _, headers, _ = await send("POST", paths.ZONES, json=ZONE_D1)
    return headers["Location"]


def etag(pick):
    async def look(send):
        _, headers, _ = await send("GET", await make_zone(send))
        return pick(headers.get("ETag", ""))

    return look


async def delete_zone(send):
    uri = await make_zone(send)
    code, _, raw = await send("DELETE", uri)
    return code, raw


async def delete_by_etag(send):
    uri = await make_zone(send)
    _, shown, _ = await send("GET", uri)
    return (await send("DELETE", uri, headers={"If-Match": shown["ETag"]}))[0]


def patch(sent):
    async def look(send):
        uri = f"{paths.ZONES}/h1"
        await send("PATCH", uri, json=sent)
        _, _, raw = await send("GET", uri)
        return [end["@odata.id"].rpartition("/")[2] for end in json.loads(raw)["Links"]["Endpoints"]]

    return look


def refuse(pick):
    async def look(send):
        await make_zone(send)
        return pick(*await send("POST", paths.ZONES, json=zone("h2", "d1")))

    return look


async def read_often(send):
    _, login, _ = await send("POST", paths.SESSIONS, json=SENT)
    token = {"X-Auth-Token": login["X-Auth-Token"]}
    try:
        return [(await send("GET", paths.ENDPOINTS, headers=token))[0] for _ in range(41)][-1]
    except aiohttp.ClientPayloadError:
        return "cut"


async def pass_time(send):
    loop = asyncio.get_running_loop()
    began = loop.time()
    await send("GET", paths.ENDPOINTS)
    return round(loop.time() - began, 1)


async def wait_a_minute(send):
    try:
        async with asyncio.timeout(60):
            return (await send("GET", LAST))[0]
    except TimeoutError:
        return None


async def monitor_of_ended(send):
    _, headers, _ = await send("POST", paths.ZONES, json=ZONE_D1)
    await asyncio.sleep(TASKS["task_seconds"] + 1)
    return (await send("GET", headers["Location"]))[0]


TASKS = {"task_seconds": 5.0}
POST = {"method": "POST", "path": paths.ZONES, "json": ZONE_D1}
ONE = {"form": Form.COMPOSITION}
CPU = f"{paths.block('spare-cpu')}/Processors/1"


def pick_creation(code, headers, _raw):
    return code, "Location" in headers


SHOWN = {
    # Changes.
    "last-member": Shown(
        look=patch(zone("h1", "d1", "d2")), form=Form.PORT, plain=["h1", "d1", "d2"], odd=["h1", "d2"]
    ),
    "typed-creations": Shown(look=status(**POST), plain=201, odd=400),
    "top-endpoints": Shown(look=patch(ZONE_D1), form=Form.PORT, plain=["h1", "d1"], odd=[]),
    "patch-200": Shown(
        look=status("PATCH", f"{paths.ZONES}/h1", json=ZONE_D1), form=Form.PORT, plain=204, odd=200
    ),
    "post-200": Shown(look=answer(pick_creation, **POST), plain=(201, True), odd=(200, False)),
    "post-204": Shown(look=answer(pick_creation, **POST), plain=(201, True), odd=(204, False)),
    "delete-text": Shown(look=delete_zone, plain=(204, b""), odd=(200, b"1 has been deleted")),
    # ETags.
    "no-etags": Shown(look=etag(bool), plain=True, odd=False),
    "unquoted-etags": Shown(look=etag(lambda shown: shown[0] == '"'), plain=True, odd=False),
    "weak-etags": Shown(look=etag(lambda shown: shown[:2] == "W/"), plain=False, odd=True),
    "twice-quoted-etags": Shown(look=etag(lambda shown: shown[:2] == '""'), plain=False, odd=True),
    "refused-etags": Shown(look=delete_by_etag, plain=204, odd=412),
    # Forms.
    "numbers-as-text": Shown(look=body(lambda shown: shown["Members@odata.count"]), plain=5, odd="5"),
    "retry-after-date": Shown(
        look=answer(lambda code, headers, raw: headers["Retry-After"][-3:], **POST),
        setting=TASKS,
        plain="0",
        odd="GMT",
    ),
    "retry-after-fraction": Shown(look=header("Retry-After", **POST), setting=TASKS, plain="0", odd="0.25"),
    "slow": Shown(look=pass_time, plain=0.0, odd=0.3),
    "bad-bytes": Shown(
        look=answer(lambda code, headers, raw: b"\xff" in raw, path=LAST), plain=False, odd=True
    ),
    "byte-order-mark": Shown(
        look=answer(lambda code, headers, raw: raw[:3] == b"\xef\xbb\xbf"), plain=False, odd=True
    ),
    "odd-content-types": Shown(
        look=header("Content-Type"), plain="application/json; charset=utf-8", odd="application/xml"
    ),
    "gzip-or-406": Shown(look=status(path=LAST, headers={"Accept-Encoding": "identity"}), plain=200, odd=406),
    "gzip": Shown(
        look=header("Content-Encoding", headers={"Accept-Encoding": "identity"}), plain=None, odd="gzip"
    ),
    "deflate": Shown(
        look=header("Content-Encoding", headers={"Accept-Encoding": "deflate"}), plain=None, odd="deflate"
    ),
    "two-headers": Shown(look=answer(lambda code, headers, raw: len(headers.getall("ETag"))), plain=1, odd=2),
    "small-links": Shown(
        look=body(lambda shown: "Links" in shown, f"{paths.SYSTEMS}/h1"),
        form=Form.COMPOSITION,
        plain=True,
        odd=False,
    ),
    "small-headers": Shown(
        look=answer(lambda code, headers, raw: "OData-Version" in list(headers.keys())), plain=True, odd=False
    ),
    # Members.
    "broken-member": Shown(look=status(path=LAST), plain=200, odd=500),
    "hanging-member": Shown(look=wait_a_minute, plain=200, odd=None),
    "html-member": Shown(
        look=header("Content-Type", path=LAST), plain="application/json; charset=utf-8", odd="text/html"
    ),
    "refused-expand": Shown(look=status(path=paths.ENDPOINTS + EXPANDED), plain=200, odd=400),
    "broken-expand": Shown(look=status(path=f"{ROOT}/Chassis/e1/PCIeDevices{EXPANDED}"), plain=200, odd=500),
    "ignored-expand": Shown(
        look=body(lambda shown: "Id" in shown["Members"][0], paths.ENDPOINTS + EXPANDED),
        plain=True,
        odd=False,
    ),
    "empty-members": Shown(
        look=body(lambda shown: shown["Members"][0]["@odata.id"]), plain=paths.endpoint("h1"), odd=""
    ),
    "object-member": Shown(
        look=body(lambda shown: type(shown["Members"]), f"{ROOT}/Fabrics"), plain=list, odd=dict
    ),
    "links-members": Shown(look=body(lambda shown: "Members" in shown), plain=True, odd=False),
    "no-members": Shown(look=body(lambda shown: "Members" in shown), plain=True, odd=False),
    "count-above-members": Shown(
        look=body(lambda shown: shown["Members@odata.count"] - len(shown["Members"])), plain=0, odd=2
    ),
    # Parts.
    "cpu-blocks": Shown(look=block("ProcessorType", CPU), form=Form.COMPOSITION, plain=None, odd="CPU"),
    "untyped-blocks": Shown(
        look=block("ResourceBlockType", paths.block("d1")),
        form=Form.COMPOSITION,
        plain=["Processor"],
        odd=[],
    ),
    "dimm-block": Shown(
        look=block("MemoryType", f"{paths.block('dimm')}/Memory/1"), **ONE, plain=None, odd="DRAM"
    ),
    "sas-block": Shown(
        look=block("Protocol", f"{paths.block('sas-drive')}/Drives/1"), **ONE, plain=None, odd="SAS"
    ),
    "network-block": Shown(
        look=block("MACAddress", f"{paths.block('network')}/EthernetInterfaces/1"),
        **ONE,
        plain=None,
        odd="52:54:00:1c:96:5f",
    ),
    "storage-blocks": Shown(
        look=block("Protocol", f"{paths.block('storage')}/Storages/1/Drives/1"),
        **ONE,
        plain=None,
        odd="NVMe",
    ),
    "other-fabrics": Shown(
        look=body(lambda shown: shown["Members@odata.count"], f"{ROOT}/Fabrics"), plain=1, odd=3
    ),
    "pci-id": Shown(look=body(lambda shown: "PciId" in shown, paths.endpoint("d1")), plain=False, odd=True),
    "links-ports": Shown(
        look=body(lambda shown: "Ports" in shown["Links"], paths.endpoint("h1")),
        form=Form.APPLIANCE,
        plain=False,
        odd=True,
    ),
    "twin-ids": Shown(
        look=answer(
            lambda code, headers, raw: (code, json.loads(raw).get("Id")), path=paths.endpoint("twin-2")
        ),
        plain=(404, None),
        odd=(200, "twin"),
    ),
    "shared-zone": Shown(
        look=answer(
            lambda code, headers, raw: json.loads(raw).get("Links", {}).get("Endpoints@odata.count"),
            path=f"{paths.ZONES}/shared",
        ),
        plain=None,
        odd=3,
    ),
    "host-placeholders": Shown(
        look=body(lambda shown: shown["UUID"].startswith("00000000"), f"{paths.SYSTEMS}/h1"),
        plain=False,
        odd=True,
    ),
    "one-identity": Shown(
        look=body(lambda shown: shown["SerialNumber"] == "437XR1138R2", f"{paths.SYSTEMS}/h2"),
        plain=False,
        odd=True,
    ),
    # Refusals.
    "refusal-406": Shown(look=refuse(lambda code, headers, raw: code), plain=409, odd=406),
    "refusal-422": Shown(look=refuse(lambda code, headers, raw: code), plain=409, odd=422),
    "refusal-text": Shown(
        look=refuse(lambda code, headers, raw: raw[:12]), plain=b'{"error": {"', odd=b"The endpoint"
    ),
    "refusal-string": Shown(look=refuse(lambda code, headers, raw: raw[:4]), plain=b'{"er', odd=b'"The'),
    "refusal-message": Shown(
        look=refuse(lambda code, headers, raw: [*json.loads(raw)]), plain=["error"], odd=["message"]
    ),
    "refusal-page": Shown(look=refuse(lambda code, headers, raw: raw[:6]), plain=b'{"erro', odd=b"<html>"),
    # Sessions.
    "basic-root": Shown(look=status(path=f"{ROOT}/"), setting=LOGIN, plain=200, odd=401),
    "basic-only": Shown(look=status("POST", paths.SESSIONS, json=SENT), setting=LOGIN, plain=201, odd=401),
    "no-session-location": Shown(
        look=answer(pick_creation, "POST", paths.SESSIONS, json=SENT),
        setting=LOGIN,
        plain=(201, True),
        odd=(201, False),
    ),
    "cut-401": Shown(look=read_often, setting=LOGIN, plain=200, odd="cut"),
    # URIs.
    "slashes": Shown(look=status(), plain=200, odd=308),
    "capital-prefix": Shown(
        look=block("@odata.id", paths.ENDPOINTS),
        plain=paths.ENDPOINTS,
        odd=paths.ENDPOINTS.replace("/redfish/", "/Redfish/"),
    ),
    "session-redirect": Shown(
        look=status("POST", paths.SESSIONS, json=SENT), setting=LOGIN, plain=201, odd=307
    ),
    "root-redirect": Shown(look=status(path=f"{ROOT}/"), plain=200, odd=301),
    "root-with-slash": Shown(look=status(path=ROOT), plain=200, odd=404),
    "pages": Shown(look=body(lambda shown: len(shown["Members"])), plain=5, odd=2),
    "foreign-locations": Shown(
        look=header("Location", **POST),
        plain=f"{paths.ZONES}/1",
        odd=f"https://fm-01.mgmt.example{paths.ZONES}/1",
    ),
    "foreign-links": Shown(
        look=body(lambda shown: shown["@odata.id"]),
        plain=paths.ENDPOINTS,
        odd=f"https://fm-01.mgmt.example{paths.ENDPOINTS}",
    ),
    "wrong-ids": Shown(
        look=body(lambda shown: shown["@odata.id"]), plain=paths.ENDPOINTS, odd=f"{ROOT}/Endpoints"
    ),
    "no-zones-link": Shown(look=status(path=paths.ZONES), plain=200, odd=404),
    "wrong-links": Shown(
        look=body(lambda shown: shown["Endpoints"]["@odata.id"], paths.FABRIC),
        plain=paths.ENDPOINTS,
        odd=f"{ROOT}/Endpoints",
    ),
    "see-other": Shown(look=status(**POST), setting=TASKS, plain=202, odd=303),
    "task-location": Shown(
        look=answer(lambda code, headers, raw: headers["Location"].split("/")[4], **POST),
        setting=TASKS,
        plain="TaskMonitors",
        odd="Tasks",
    ),
    "forgotten-monitors": Shown(look=monitor_of_ended, setting=TASKS, plain=201, odd=404),
}


def test_each_quirk_has_a_row():
    assert SHOWN.keys() == quirks.QUIRKS.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_one_answer_differs_by_the_quirk_alone(name):
    shown = SHOWN[name]

    async def compare():
        looks = []
        for names in ((), (name,)):
            async with serve_quirks(*names, form=shown.form, **shown.setting) as send:
                looks.append(await shown.look(send))
        return looks

    assert virtualtime.in_virtual_time(compare)() == [shown.plain, shown.odd]
