"""Refusals of a Redfish service: its extended errors as errors of the contract; pure.

The form is that of DSP0266, "Error responses": `error.@Message.ExtendedInfo[].MessageId` is
`<registry>.<major>.<minor>.<key>`. Services speak different minor versions, so only registry and key count. The keys
are those of the registries Base and Composition (DMTF/Redfish-Publications).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from drawbar.fabric import errors
from drawbar.fabric.redfish import documents

EXTENDED = "@Message.ExtendedInfo"
# A refusal with more messages names its causes in the first ones.
MESSAGES = 8
# The key of the header WWW-Authenticate in `FabricError.vendor`.
CHALLENGE = "authenticate"
BUSY = "SERVICE_BUSY"
EXPIRED_LOGIN = "PASSWORD_CHANGE_REQUIRED"
ETAG_REQUIRED = "ETAG_REQUIRED"
SESSION_LIMIT = "SESSION_LIMIT"
UNKNOWN_PARAMETER = "UNKNOWN_PARAMETER"
SESSION_ENDED = "SESSION_ENDED"
# Of a transient error that a task monitor answers with: it is how the request ended, not that the monitor is busy.
FINAL_REASONS = frozenset({"HTTP_500", "RESOURCE_IN_USE", str(errors.Reason.STALE_ETAG)})

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_BASIC = re.compile(r"(?:^|,)\s*basic(?:\s|,|$)", re.IGNORECASE)
# Ends of the names under which other services give a reason, in lower case without a plural, the most telling first.
_WORDS = ("message", "msg", "detail", "description", "reason", "messageid", "error", "title")
_WORDS_LEVELS = 4
# A sentence that only points to others.
_POINTER = re.compile(r"extended ?info|see resolution", re.IGNORECASE)
# Keys of messages about a success: iLO answers with them in the form of an error.
_SUCCESSES = frozenset({"Created", "NoOperation", "Success"})
_SEVERE = frozenset({"critical", "warning"})
# An argument of a message, such as `%1`.
_PLACE = re.compile(r"%([1-9])")

_Error = tuple[type[errors.FabricError], str]

_BY_KEY: Mapping[str, _Error] = MappingProxyType(
    {
        "ResourceInUse": (errors.Unavailable, "RESOURCE_IN_USE"),
        "ServiceTemporarilyUnavailable": (errors.Unavailable, BUSY),
        "ServiceShuttingDown": (errors.Unavailable, "SERVICE_SHUTTING_DOWN"),
        "ServiceInUnknownState": (errors.Unavailable, BUSY),
        "SessionLimitExceeded": (errors.Unavailable, SESSION_LIMIT),
        "ResourceAlreadyExists": (errors.FailedPrecondition, "RESOURCE_EXISTS"),
        "ResourceNotFound": (errors.NotFound, ""),
        "ResourceMissingAtURI": (errors.NotFound, ""),
        "ResourceExhaustion": (errors.ResourceExhausted, ""),
        "InsufficientStorage": (errors.ResourceExhausted, ""),
        "CreateLimitReachedForResource": (errors.ResourceExhausted, ""),
        "ResourceCreationConflict": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "PropertyValueConflict": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "PropertyValueResourceConflict": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "ActionParameterValueConflict": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "ResourceInStandby": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "ResourceCannotBeDeleted": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "PreconditionFailed": (errors.Aborted, errors.Reason.STALE_ETAG),
        "PreconditionRequired": (errors.Unimplemented, ETAG_REQUIRED),
        "InsufficientPrivilege": (errors.PermissionDenied, ""),
        "InsufficientPrivilegeForResource": (errors.PermissionDenied, ""),
        "AccessDenied": (errors.PermissionDenied, ""),
        "NoValidSession": (errors.Unauthenticated, SESSION_ENDED),
        "ResourceAtUriUnauthorized": (errors.Unauthenticated, ""),
        "PasswordChangeRequired": (errors.Unauthenticated, EXPIRED_LOGIN),
        "OperationNotAllowed": (errors.Unimplemented, ""),
        "ActionNotSupported": (errors.Unimplemented, ""),
        "ActionParameterNotSupported": (errors.InvalidArgument, UNKNOWN_PARAMETER),
        "ActionParameterUnknown": (errors.InvalidArgument, UNKNOWN_PARAMETER),
        "CreateFailedMissingReqProperties": (errors.Unimplemented, "OTHER_FORM"),
        "PropertyNotWritable": (errors.Unimplemented, "OTHER_FORM"),
        "ResourceBlockInUse": (errors.FailedPrecondition, "RESOURCE_BLOCK_IN_USE"),
        "ResourceBlockAlreadyReserved": (errors.FailedPrecondition, "RESOURCE_BLOCK_RESERVED"),
        "IncompatibleZone": (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        "NoResourceMatch": (errors.ResourceExhausted, errors.Reason.NO_DEVICE),
    }
)
_BY_STATUS: Mapping[int, _Error] = MappingProxyType(
    {
        400: (errors.InvalidArgument, ""),
        401: (errors.Unauthenticated, ""),
        403: (errors.PermissionDenied, ""),
        404: (errors.NotFound, ""),
        405: (errors.Unimplemented, ""),
        409: (errors.FailedPrecondition, errors.Reason.INCOMPATIBLE),
        406: (errors.FailedPrecondition, "HTTP_406"),
        408: (errors.Unavailable, "HTTP_408"),
        410: (errors.NotFound, ""),
        411: (errors.InvalidArgument, "HTTP_411"),
        412: (errors.Aborted, errors.Reason.STALE_ETAG),
        413: (errors.InvalidArgument, "HTTP_413"),
        415: (errors.InvalidArgument, "HTTP_415"),
        422: (errors.InvalidArgument, "HTTP_422"),
        423: (errors.Unavailable, "HTTP_423"),
        425: (errors.Unavailable, "HTTP_425"),
        428: (errors.Unimplemented, ETAG_REQUIRED),
        429: (errors.Unavailable, BUSY),
        501: (errors.Unimplemented, ""),
        503: (errors.Unavailable, BUSY),
        507: (errors.ResourceExhausted, ""),
    }
)


def find_extended(body: documents.Json) -> tuple[documents.Json, ...]:
    """Return the most specific messages in an error's body; some services annotate the refused property with them."""
    annotated = (documents.objects(body, name) for name in body if name.endswith(EXTENDED))
    return next(filter(None, (documents.objects(body, "error", EXTENDED), *annotated)), ())[:MESSAGES]


def refusal(
    status: int,
    body: documents.Json,
    *,
    what: str,
    changes: bool,
    redacted: Callable[[str], str] = str,
    remedy: str = "",
    challenge: str = "",
) -> errors.FabricError:
    """Return the error of the contract for an answer of status 400 and above.

    Args:
        status: of the answer.
        body: of the answer; empty if it was no JSON.
        what: the request, for people.
        changes: whether the request was to change something: after a failure of the service, the effect is unknown.
        redacted: removes the secrets from the service's own words.
        remedy: a clause with the remedy, if the refusal has none.
        challenge: the header WWW-Authenticate.
    """
    entries = find_extended(body)
    keys = _keys(entries, body)
    # A request that is wrong in a way that is not known here stays wrong.
    unlisted = errors.FailedPrecondition if status < 500 else errors.Unavailable
    kind, reason = next((_BY_KEY[key] for key in keys if key in _BY_KEY), None) or _BY_STATUS.get(
        status, (unlisted, f"HTTP_{status}")
    )
    if status == 401 and kind is not errors.Unauthenticated:
        # Some services name a lack of privileges (Dell: AccessDenied), or nothing to be found, once the session has ended.
        kind, reason = _BY_STATUS[status]
    return kind(
        f"the Redfish service refused {what} with {status}: {_sentence(body, entries, redacted)}"
        f"{_remedy(kind, reason) or remedy}",
        reason=reason,
        side_effects_unknown=changes and (status >= 500 and status not in {501, 503, 507}),
        vendor=({CHALLENGE: challenge} if challenge else {}) | _vendor(entries, status, redacted),
    )


def _keys(entries: tuple[documents.Json, ...], body: documents.Json) -> list[str]:
    """Return the keys of the messages, and then that of the whole error."""
    ids = [documents.text(entry, "MessageId") for entry in entries]
    return [name.rpartition(".")[2] for name in (*ids, documents.text(body, "error", "code"))]


def is_refusal(body: documents.Json) -> bool:
    """Return whether an answer of any status is an error and nothing else."""
    shown = {name for name in body if not name.startswith("@")}
    return shown == {"error"} and _SUCCESSES.isdisjoint(_keys(find_extended(body), body))


def is_objection(body: documents.Json) -> bool:
    """Return whether an accepted change comes with a message against it, or against one of its properties (DSP0266, "Modification")."""
    for name in body:
        for entry in documents.objects(body, name) if name.endswith(EXTENDED) else ():
            severity = documents.word(entry, "MessageSeverity") or documents.word(entry, "Severity")
            is_severe = severity in _SEVERE or (not severity and name != EXTENDED)
            if is_severe and _SUCCESSES.isdisjoint(_keys((entry,), {})):
                return True
    return False


def failure(body: documents.Json, *, what: str, redacted: Callable[[str], str]) -> errors.FabricError:
    """Return the error of a failed task, from the task or the refusal that it ended with."""
    messages = documents.objects(body, "Messages")[:MESSAGES] or find_extended(body)
    keys = _keys(messages, body)
    kind, reason = next((_BY_KEY[key] for key in keys if key in _BY_KEY), (errors.Unavailable, "TASK_FAILED"))
    return kind(
        f"the task of the Redfish service for {what} failed: {_sentence(body, messages, redacted)}",
        reason=reason,
        side_effects_unknown=True,
        vendor=_vendor(messages, 0, redacted),
    )


def _sentence(
    body: documents.Json, messages: tuple[documents.Json, ...], redacted: Callable[[str], str]
) -> str:
    texts = [_redact_text(_fill_arguments(entry), redacted) for entry in messages]
    sentences = " ".join(sentence for sentence in texts if sentence)
    if sentences:
        return sentences
    own = _redact_text(documents.value(body, "error", "message"), redacted)
    if own and not _POINTER.search(own):
        return own
    other = next(
        (text for each in _other_words(body) if (text := _redact_text(each, redacted)) and text != own), ""
    )
    return f'"{other}"' if other else own or "it gives no reason"


def _fill_arguments(entry: documents.Json) -> Any:
    """Return a message with its arguments in place of `%1`, `%2`, and so on."""
    text, arguments = documents.value(entry, "Message"), documents.value(entry, "MessageArgs")
    if not isinstance(text, str) or not isinstance(arguments, list):
        return text
    shown = [documents.as_text(argument) for argument in arguments[:MESSAGES]]
    return _PLACE.sub(lambda match: (shown[int(match[1]) - 1 :] or [match[0]])[0], text)


def _other_words(body: documents.Json) -> list[str]:
    """Return the possible reasons in a refusal that has not the form of the specification, the most telling first."""
    found = sorted(_walk(body, len(_WORDS), _WORDS_LEVELS), key=lambda each: each[0])
    return [text for _, text in found]


def _walk(content: Any, rank: int, levels: int) -> Iterator[tuple[int, str]]:
    """Yield the texts below a property, each with the rank of its name; a name that tells nothing has that of its owner."""
    if isinstance(content, str) and rank < len(_WORDS):
        yield rank, content
    if levels and isinstance(content, list):
        for entry in content[:MESSAGES]:
            yield from _walk(entry, rank, levels - 1)
    if levels and isinstance(content, dict):
        for name, entry in content.items():
            plain = name.casefold().removesuffix("s")
            own = next((each for each, word in enumerate(_WORDS) if plain.endswith(word)), rank)
            # OData 3 has an object with a language and a value.
            if "lang" not in plain:
                yield from _walk(entry, own, levels - 1)


def wants_basic(error: errors.FabricError) -> bool:
    """Return whether a refusal asks for the password with each request, in one of its challenges."""
    return _BASIC.search(_QUOTED.sub('""', error.vendor.get(CHALLENGE, ""))) is not None


def explain_login(error: errors.FabricError) -> errors.FabricError:
    """Return the refusal of a login as an error of credentials, for any status."""
    if isinstance(error, errors.Unauthenticated) or error.reason == SESSION_LIMIT:
        return error
    if isinstance(error, errors.ResourceExhausted):
        # Of sessions: some services name no limit (CreateLimitReachedForResource).
        return errors.Unavailable(
            f"{error.message}{_remedy(errors.Unavailable, SESSION_LIMIT)}",
            reason=SESSION_LIMIT,
            vendor=error.vendor,
        )
    text = error.message.removesuffix(_remedy(type(error), error.reason))
    return errors.Unauthenticated(
        f"{text}{_remedy(errors.Unauthenticated, '')}", reason="LOGIN_REFUSED", vendor=error.vendor
    )


def explain_privilege(error: errors.Unauthenticated) -> errors.PermissionDenied:
    """Return the refusal of a request with a new session as a lack of privileges: some services answer 401 for it."""
    text = error.message.removesuffix(_remedy(errors.Unauthenticated, error.reason))
    return errors.PermissionDenied(
        f"{text}{_remedy(errors.PermissionDenied, '')}",
        side_effects_unknown=error.side_effects_unknown,
        vendor=error.vendor,
    )


def _redact_text(content: Any, redacted: Callable[[str], str]) -> str:
    """Return a text of the service without secrets, and then cut: half of a secret would not be recognised."""
    if not isinstance(content, str):
        return ""
    return errors.cut(documents.as_text(redacted(content)), documents.TEXT_BYTES)


def _remedy(kind: type[errors.FabricError], reason: str) -> str:
    if reason == SESSION_LIMIT:
        return "; end sessions there, or raise their limit"
    if reason == ETAG_REQUIRED:
        return "; it demands an ETag and shows none: leave out the parameter `etags: no`, or tell the vendor"
    if reason == EXPIRED_LOGIN:
        return "; give the account a new password, and put that into the Fabric's Secret"
    if kind is errors.Unauthenticated:
        return "; look at the user name and password in the Fabric's Secret"
    if kind is errors.PermissionDenied:
        return "; give the account the privilege ConfigureComponents"
    if kind is errors.Unimplemented:
        return "; the service may need another value of the parameter `profile`"
    return ""


def _vendor(
    messages: tuple[documents.Json, ...], status: int, redacted: Callable[[str], str]
) -> dict[str, str]:
    vendor = {"status": str(status)} if status else {}
    for number, entry in enumerate(messages):
        texts = (_redact_text(documents.value(entry, name), redacted) for name in ("MessageId", "Message"))
        vendor[f"message{number}"] = ": ".join(texts)
    return vendor
