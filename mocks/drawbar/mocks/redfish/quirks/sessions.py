"""Quirks of sessions: no sessions, sessions without a Location, and sessions whose end breaks off."""

from dataclasses import replace

from drawbar.mocks.redfish import paths
from drawbar.mocks.redfish.exchange import Answer, Asked, make_answer, make_refusal
from drawbar.mocks.redfish.quirks.quirk import Forward, Quirk, Setting
from drawbar.mocks.redfish.tree import ROOT

SESSION_REQUESTS = 40


async def _ask_for_password(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    if asked.resource.startswith(f"{ROOT}/SessionService"):
        is_login = asked.method == "POST" and asked.resource == paths.SESSIONS
        if is_login or "Authorization" not in asked.headers:
            return make_refusal(401, "Base.1.0.GeneralError", "Authorization required").with_header(
                "WWW-Authenticate", 'Basic realm="Baremetal API"'
            )
        return make_refusal(404, "Base.1.0.GeneralError", "Not Found")
    answer = await forward(asked)
    body = answer.resource
    if body is None or asked.resource != ROOT:
        return answer
    return replace(
        answer, body={name: value for name, value in body.items() if name != "SessionService"} | {"Links": {}}
    )


async def _hide_location(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    answer = await forward(asked)
    is_login = asked.method == "POST" and asked.resource == paths.SESSIONS
    return answer.with_header("Location", None) if is_login else answer


async def _end_early(asked: Asked, forward: Forward, setting: Setting) -> Answer:
    if asked.method == "POST" and asked.resource == paths.SESSIONS:
        answer = await forward(asked)
        if token := answer.headers.get("X-Auth-Token"):
            setting.memory[token] = [SESSION_REQUESTS, answer.headers.get("Location")]
        return answer
    token = asked.headers.get("X-Auth-Token", "")
    left = setting.memory.get(token)
    if left is None or asked.method == "DELETE":
        return await forward(asked)
    left[0] -= 1
    if left[0] >= 0:
        return await forward(asked)
    if left[0] == -1:
        await forward(Asked(method="DELETE", path=left[1], headers=asked.headers))
    ended = make_answer(
        "<html><title>Unauthorized</title></html>",
        status=401,
        kind="text/html",
        headers={"WWW-Authenticate": 'Basic realm="RedfishService"'},
    )
    return replace(ended, is_cut=True)


async def _guard_root(asked: Asked, forward: Forward, _setting: Setting) -> Answer:
    is_anonymous = "Authorization" not in asked.headers and "X-Auth-Token" not in asked.headers
    if asked.resource == ROOT and is_anonymous:
        return make_refusal(401, "Base.1.0.NoValidSession", "There is no valid session.").with_header(
            "WWW-Authenticate", 'Basic realm="RedfishService"'
        )
    return await forward(asked)


QUIRKS = (
    Quirk(
        name="basic-root",
        text="The service root needs a password.",
        seen="a proxy",
        wrap=_guard_root,
    ),
    Quirk(
        name="basic-only",
        text="No sessions: each request carries the password; logins are 401.",
        seen="sushy-tools",
        wrap=_ask_for_password,
    ),
    Quirk(
        name="cut-401",
        text=f"A session ends after {SESSION_REQUESTS} requests, with a 401 and a cut body.",
        seen="Dell iDRAC 8 (bb-Ricardo/check_redfish #90)",
        wrap=_end_early,
    ),
    Quirk(
        name="no-session-location",
        text="A new session has its URI in the body, without Location.",
        seen="Dell PowerVault ME5024 (DMTF/python-redfish-library #172)",
        wrap=_hide_location,
    ),
)
