"""Quirks of ETags: missing, weak, without quotes or with too many, and refused."""

from collections.abc import Callable
from dataclasses import replace

from drawbar.mocks.redfish.exchange import Answer, Asked, make_refusal
from drawbar.mocks.redfish.quirks.quirk import Forward, Quirk, Setting, map_objects
from drawbar.mocks.redfish.tree import Body

_ETAG = "@odata.etag"
# The parameters of actions that carry one.
_OF_ACTIONS = ("ZoneETag", "ComputerSystemETag")


def _change_etags(
    answer: Answer, header: Callable[[str], str | None], own: Callable[[str], str | None]
) -> Answer:
    """Return the answer with another ETag in its header, and in the property of each resource."""

    def change(body: Body) -> Body:
        if not isinstance(body.get(_ETAG), str):
            return body
        etag = own(body[_ETAG])
        rest = {name: value for name, value in body.items() if name != _ETAG}
        return rest if etag is None else {**rest, _ETAG: etag}

    etag_header = answer.headers.get("ETag")
    changed = replace(answer, body=map_objects(answer.body, change))
    return changed if etag_header is None else changed.with_header("ETag", header(etag_header))


def _stale(asked: Asked) -> Answer:
    return make_refusal(
        412, "Base.1.8.PreconditionFailed", f"The ETag supplied did not match that of {asked.path}."
    )


async def _leave_out(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked.with_header("If-Match", None))
    return _change_etags(answer, lambda _: None, lambda _: None)


async def _weaken(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.headers.get("If-Match", "").startswith("W/"):
        return _stale(asked)
    answer = await forward(asked)
    return _change_etags(answer, "W/{}".format, "W/{}".format)


async def _unquote(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if_match = asked.headers.get("If-Match")
    quoted = asked.with_header("If-Match", _quote_etag(if_match)) if if_match is not None else asked
    body = asked.json()
    if isinstance(body, dict) and (
        named := [name for name in _OF_ACTIONS if isinstance(body.get(name), str)]
    ):
        quoted = quoted.with_json({**body, **{name: _quote_etag(body[name]) for name in named}})
    answer = await forward(quoted)
    return _change_etags(answer, lambda etag: etag.strip('"'), lambda etag: etag.strip('"'))


def _quote_etag(etag: str) -> str:
    return etag if etag == "*" or etag.startswith(('"', "W/")) else f'"{etag}"'


async def _quote_twice(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.headers.get("If-Match", "").startswith('""'):
        return _stale(asked)
    answer = await forward(asked)
    return _change_etags(answer, '"{}"'.format, str)


async def _refuse(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    return _stale(asked) if "If-Match" in asked.headers else await forward(asked)


QUIRKS = (
    Quirk(
        name="no-etags",
        text="No ETags; If-Match is ignored.",
        seen="DMTF Redfish-Mockup-Server, Sunfish",
        wrap=_leave_out,
    ),
    Quirk(
        name="unquoted-etags",
        text="ETags have no quotation marks.",
        seen="Fujitsu iRMC S5 (bb-Ricardo/check_redfish #20)",
        wrap=_unquote,
    ),
    Quirk(
        name="weak-etags",
        text="ETags are weak, and If-Match never matches.",
        seen="ansible-collections/community.general #6434",
        wrap=_weaken,
    ),
    Quirk(
        name="twice-quoted-etags",
        text="ETag is quoted twice in the header, once in the body; only this matches.",
        seen="ansible-collections/community.general #11270",
        wrap=_quote_twice,
    ),
    Quirk(
        name="refused-etags",
        text="Each request with If-Match is 412.",
        seen="bmc-toolbox/bmclib #353, Dell iDRAC 10 (stmcginnis/gofish #510)",
        wrap=_refuse,
    ),
)
