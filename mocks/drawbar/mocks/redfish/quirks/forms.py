"""Quirks of form: encodings, headers, numbers and the content of answers."""

import asyncio
import gzip
import re
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import utils

from drawbar.mocks.redfish.exchange import Answer, Asked, make_refusal
from drawbar.mocks.redfish.quirks.quirk import Forward, Quirk, Setting, map_objects
from drawbar.mocks.redfish.tree import Body

SLOW_SECONDS = 0.3
_NUMBERS = re.compile(r"(MiB|Bytes|Lanes|LanesInUse|@odata\.count)$")


async def _write_numbers_as_text(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    return replace(answer, body=map_objects(answer.body, _swap_types))


def _swap_types(body: Body) -> Body:
    changed = dict(body)
    for name, value in body.items():
        if _NUMBERS.search(name) and isinstance(value, int) and not isinstance(value, bool):
            changed[name] = str(value)
        if name == "ClassCode" and isinstance(value, str):
            changed[name] = int(value, 16)
    return changed


async def _write_small_links(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    return replace(
        answer,
        body=map_objects(
            answer.body,
            lambda shown: {"links" if name == "Links" else name: value for name, value in shown.items()},
        ),
    )


async def _date_retries(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    seconds = answer.headers.get("Retry-After")
    if seconds is None:
        return answer
    due = datetime.now(UTC) + timedelta(seconds=float(seconds))
    return answer.with_header("Retry-After", utils.format_datetime(due, usegmt=True))


async def _fraction_retries(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    seconds = answer.headers.get("Retry-After")
    return answer if seconds is None else answer.with_header("Retry-After", f"{float(seconds) + 0.25:g}")


async def _mistype(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    return answer if answer.body is None else answer.with_header("Content-Type", "application/xml")


async def _mark_byte_order(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    return replace(answer, body=b"\xef\xbb\xbf" + answer.content) if answer.content else answer


async def _write_bad_bytes(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    answer = await forward(asked)
    if not asked.is_read or not asked.resource.endswith(f"/{setting.last_device}"):
        return answer
    changed = re.sub(rb'("SerialNumber": )"[^"]*"', b'\\1"\xff\xff\xff\xff"', answer.content)
    return replace(answer, body=changed)


async def _compress(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    return _compress_answer(await forward(asked), "gzip")


async def _deflate(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    is_accepted = "deflate" in asked.headers.get("Accept-Encoding", "")
    return _compress_answer(answer, "deflate") if is_accepted else answer


async def _demand_gzip(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.method != "GET" or "/Chassis/" not in asked.path:
        return await forward(asked)
    if "gzip" not in asked.headers.get("Accept-Encoding", ""):
        return make_refusal(406, "iLO.2.13.NotAcceptable", "The resource is sent with gzip alone.")
    return _compress_answer(await forward(asked), "gzip")


def _compress_answer(answer: Answer, encoding: str) -> Answer:
    if not answer.content or "Content-Encoding" in answer.headers:
        return answer
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    return replace(answer, body=pack(answer.content)).with_header("Content-Encoding", encoding)


async def _write_small_headers(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    headers = type(answer.headers)((name.lower(), value) for name, value in answer.headers.items())
    return replace(answer, headers=headers)


async def _repeat_headers(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    headers = answer.headers.copy()
    for name, value in (
        ("Cache-Control", "no-cache"),
        ("Cache-Control", "no-store"),
        ("ETag", headers.get("ETag")),
    ):
        if value is not None:
            headers.add(name, value)
    return replace(answer, headers=headers)


async def _delay(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    await asyncio.sleep(SLOW_SECONDS)
    return await forward(asked)


QUIRKS = (
    Quirk(
        name="numbers-as-text",
        text="Sizes and counts are texts, class codes are numbers.",
        seen="stmcginnis/gofish #99, #533",
        wrap=_write_numbers_as_text,
    ),
    Quirk(
        name="small-links",
        text="The property Links is in lower case.",
        seen="",
        wrap=_write_small_links,
    ),
    Quirk(
        name="retry-after-date",
        text="Retry-After is a date.",
        seen="acmesh-official/acme.sh #7201, eth-cscs/pyfirecrest #118",
        wrap=_date_retries,
    ),
    Quirk(
        name="retry-after-fraction",
        text="Retry-After is a fraction of a second.",
        seen="SpaceTradersAPI/api-docs #24",
        wrap=_fraction_retries,
    ),
    Quirk(
        name="slow",
        text=f"Each answer takes {SLOW_SECONDS:g} s longer.",
        seen="Lenovo XCC (bb-Ricardo/check_redfish #73), stmcginnis/gofish #340",
        wrap=_delay,
    ),
    Quirk(
        name="bad-bytes",
        text="The last device's serial number is not UTF-8.",
        seen="Dell EMC (DMTF/libredfish #108)",
        wrap=_write_bad_bytes,
    ),
    Quirk(
        name="byte-order-mark",
        text="JSON begins with a byte order mark.",
        seen="unosquare/embedio #400, no Redfish service",
        wrap=_mark_byte_order,
    ),
    Quirk(
        name="odd-content-types",
        text="JSON has XML's Content-Type.",
        seen="DMTF/Redfish-Interface-Emulator #114",
        wrap=_mistype,
    ),
    Quirk(
        name="gzip-or-406",
        text="Resources below chassis are sent with gzip, or refused with 406.",
        seen="HPE iLO 5 2.30 (DMTF/Redfish-Mockup-Creator #56, #58)",
        wrap=_demand_gzip,
    ),
    Quirk(
        name="gzip",
        text="Answers have gzip, whatever the client accepts.",
        seen="DMTF/Redfish-Mockup-Creator #56",
        wrap=_compress,
    ),
    Quirk(
        name="deflate",
        text="Answers have deflate, if the client accepts it.",
        seen="allowed by RFC 9110, section 8.4.1.2",
        wrap=_deflate,
    ),
    Quirk(
        name="two-headers",
        text="The headers ETag and Cache-Control are sent twice.",
        seen="OpenBMC (ibm-openbmc/bmcweb #832), Lenovo XCC (bb-Ricardo/check_redfish #73)",
        wrap=_repeat_headers,
    ),
    Quirk(
        name="small-headers",
        text="Header names are in lower case.",
        seen="Envoy as a proxy (envoyproxy/envoy #8463)",
        wrap=_write_small_headers,
    ),
)
