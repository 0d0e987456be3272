"""The quirks of `drawbar mock redfish`: named, documented, refused where they cannot be, and shown to any client."""

import argparse
import gzip
import json
import zlib
from contextlib import asynccontextmanager

import aiohttp
import pytest

from drawbar.mocks import errors, redfish
from drawbar.mocks.redfish import command, paths, quirks
from drawbar.mocks.redfish.configuration import Configuration, Device, Enclosure, Host
from drawbar.mocks.redfish.quirks import Form

ROOT = "/redfish/v1"
NAMES = ("d1", "d2", "d3")
FORMS = {
    Form.PAIR: {},
    Form.PORT: {"zones": "port"},
    Form.CONNECTIONS: {"method": "connections"},
    Form.APPLIANCE: {"method": "connections", "initiators": False},
    Form.COMPOSITION: {"method": "composition"},
    Form.CONSTRAINED: {"method": "composition", "constrained": True},
}


def make_configuration(form=Form.PAIR, **changes):
    kind = "cxl-memory" if form in (Form.CONNECTIONS, Form.APPLIANCE) else "gpu"
    devices = tuple(Device(id=name, kind=kind, memory_mib=1024) for name in NAMES)
    return Configuration(
        hosts=(Host(id="h1"), Host(id="h2")),
        enclosures=(Enclosure(id="e1", devices=devices),),
        **{**FORMS[form], **changes},
    )


@asynccontextmanager
async def serve_quirks(*names, form=Form.PAIR, **changes):
    """Serve with the quirks, and yield a function that sends a request and returns status, headers and body."""
    async with (
        redfish.serving(make_configuration(form, quirks=names, **changes)) as service,
        aiohttp.ClientSession(service.url, auto_decompress=False) as client,
    ):

        async def send(method, path, **kinds):
            async with client.request(method, path, allow_redirects=False, **kinds) as answer:
                return answer.status, answer.headers, await answer.read()

        yield send


def zone(*ends):
    return {"Links": {"Endpoints": [{"@odata.id": paths.endpoint(end)} for end in ends]}}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_known_by_its_configuration(form):
    assert quirks.form(make_configuration(form)) is form


@pytest.mark.parametrize("form", FORMS)
async def test_every_quirk_of_a_form_can_be_had_at_once_but_one(form):
    names = [name for name, quirk in quirks.QUIRKS.items() if form in quirk.forms and name != "root-redirect"]
    async with redfish.serving(make_configuration(form, quirks=tuple(names))) as service:
        assert [quirk.name for quirk in service.quirks] == names


@pytest.mark.parametrize(
    ("options", "content", "words"),
    [
        (["--quirk", "pages,odd"], {}, ["--quirk pages,odd", '"odd" is unknown', "weak-etags"]),
        (["--quirk", "dimm-block"], {}, ["composition, constrained", "form pair"]),
        (["--quirk", "root-redirect,root-with-slash"], {}, ["--quirk", "leave no service root"]),
        ([], {"quirks": ["odd"]}, ["--config", '"odd" is unknown']),
    ],
)
async def test_a_quirk_that_cannot_be_is_refused_in_a_sentence(tmp_path, options, content, words):
    path = tmp_path / "redfish.json"
    path.write_text(json.dumps({"hosts": [{"id": "h1"}], **content}))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(errors.UsageError) as refused:
        await command.serve(parser.parse_args(["--config", str(path), *options]))
    assert all(word in str(refused.value) for word in words)


async def test_pages_are_followed_by_their_queries():
    async with serve_quirks("pages") as send:
        listed, path = [], paths.ENDPOINTS
        while path:
            _, _, raw = await send("GET", path)
            page = json.loads(raw)
            listed += page["Members"]
            path = page.get("Members@odata.nextLink")
        assert len(listed) == page["Members@odata.count"] == 5


async def test_slashes_are_everywhere_and_demanded_of_each_method():
    async with serve_quirks("slashes") as send:
        status, headers, _ = await send("POST", paths.ZONES, json=zone("h1", "d1"))
        assert (status, headers["Location"]) == (308, f"{paths.ZONES}/")
        status, headers, _ = await send("POST", f"{paths.ZONES}/", json=zone("h1/", "d1/"))
        assert status == 201
        _, _, raw = await send("GET", headers["Location"])
        assert json.loads(raw)["@odata.id"] == headers["Location"]


@pytest.mark.parametrize(
    ("name", "unpack"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)], ids=["gzip", "deflate"]
)
async def test_answers_are_packed_with_all_other_quirks_inside(name, unpack):
    async with serve_quirks(name, "byte-order-mark") as send:
        _, headers, raw = await send("GET", paths.ENDPOINTS)
        assert headers["Content-Encoding"] == name
        assert json.loads(unpack(raw).decode("utf-8-sig"))["Members@odata.count"] == 5


@pytest.mark.parametrize(
    ("name", "match", "status"),
    [
        ("weak-etags", str, 412),
        ("refused-etags", str, 412),
        ("no-etags", lambda _: '"any"', 204),
        ("unquoted-etags", str, 204),
        ("twice-quoted-etags", str, 412),
        ("twice-quoted-etags", lambda etag: etag[1:-1], 204),
    ],
)
async def test_etags_are_compared_as_the_quirk_says(name, match, status):
    async with serve_quirks(name) as send:
        _, headers, _ = await send("POST", paths.ZONES, json=zone("h1", "d1"))
        _, shown, _ = await send("GET", headers["Location"])
        condition = {"If-Match": match(shown.get("ETag", ""))}
        assert (await send("DELETE", headers["Location"], headers=condition))[0] == status


async def test_the_etag_of_an_action_has_no_quotation_marks_either():
    async with serve_quirks("unquoted-etags", form=Form.PORT, actions=True) as send:
        uri = f"{paths.ZONES}/h1"
        _, shown, _ = await send("GET", uri)
        body = {"Endpoint": {"@odata.id": paths.endpoint("d1")}, "ZoneETag": shown["ETag"]}
        assert (await send("POST", f"{uri}/Actions/Zone.AddEndpoint", json=body))[0] == 204


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("refusal-text", b"The endpoint"),
        ("refusal-string", b'"The endpoint'),
        ("refusal-message", b'{"message": "The endpoint'),
        ("refusal-page", b"<html><head><title>The endpoint"),
    ],
)
async def test_refusals_have_the_words_in_another_form(name, body):
    async with serve_quirks(name, "refusal-422") as send:
        await send("POST", paths.ZONES, json=zone("h1", "d1"))
        status, _, raw = await send("POST", paths.ZONES, json=zone("h2", "d1"))
        assert (status, raw[: len(body)]) == (422, body)


async def test_a_zone_is_emptied_by_a_body_in_the_form_of_the_specification():
    async with serve_quirks("top-endpoints", form=Form.PORT) as send:
        uri = f"{paths.ZONES}/h1"
        ends = zone("h1", "d1")["Links"]
        assert (await send("PATCH", uri, json=ends))[0] == 204
        assert len(json.loads((await send("GET", uri))[2])["Links"]["Endpoints"]) == 2
        await send("PATCH", uri, json={"Links": ends})
        assert json.loads((await send("GET", uri))[2])["Links"]["Endpoints"] == []


async def test_a_service_of_passwords_alone_refuses_a_login():
    async with serve_quirks("basic-only", username="u", password="p") as send:
        status, headers, _ = await send("POST", paths.SESSIONS, json={"UserName": "u", "Password": "p"})
        assert (status, headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        authorization = {"Authorization": aiohttp.encode_basic_auth("u", "p")}
        assert (await send("GET", paths.ENDPOINTS, headers=authorization))[0] == 200
        assert "SessionService" not in json.loads((await send("GET", f"{ROOT}/"))[2])


@pytest.mark.parametrize("names", [("cut-401",), ("cut-401", "no-session-location")], ids="+".join)
async def test_a_session_of_some_requests_ends_in_the_middle_of_the_refusal(names):
    async with serve_quirks(*names, username="u", password="p") as send:
        _, login, _ = await send("POST", paths.SESSIONS, json={"UserName": "u", "Password": "p"})
        token = {"X-Auth-Token": login["X-Auth-Token"]}
        for _ in range(40):
            assert (await send("GET", paths.ENDPOINTS, headers=token))[0] == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await send("GET", paths.ENDPOINTS, headers=token)


async def test_a_created_resource_has_no_location_and_needs_its_type():
    async with serve_quirks("typed-creations", "post-200", "delete-text") as send:
        assert (await send("POST", paths.ZONES, json=zone("h1", "d1")))[0] == 400
        typed = zone("h1", "d1") | {"@odata.type": "#Zone.v1_6_0.Zone"}
        status, headers, raw = await send("POST", paths.ZONES, json=typed)
        assert (status, "Location" in headers) == (200, False)
        status, _, raw = await send("DELETE", json.loads(raw)["@odata.id"])
        assert (status, raw) == (200, b"1 has been deleted")
