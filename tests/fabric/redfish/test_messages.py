import pytest

from drawbar.fabric import errors
from drawbar.fabric.errors import Reason
from drawbar.fabric.redfish import messages


def _body(*keys, text="It is so."):
    entries = [{"MessageId": key, "Message": text} for key in keys]
    return {"error": {"code": "Base.1.18.GeneralError", "message": "See.", "@Message.ExtendedInfo": entries}}


def _refusal(status, body=None, **changes):
    arguments = {"what": "PATCH /redfish/v1/Systems/1", "changes": True} | changes
    return messages.refusal(status, body or {}, **arguments)


@pytest.mark.parametrize(
    ("status", "key", "error", "reason"),
    [
        (400, "Base.1.18.ResourceInUse", errors.Unavailable, "RESOURCE_IN_USE"),
        (503, "Base.1.0.ServiceTemporarilyUnavailable", errors.Unavailable, "SERVICE_BUSY"),
        (503, "Base.1.18.SessionLimitExceeded", errors.Unavailable, messages.SESSION_LIMIT),
        (400, "Base.1.18.ResourceAlreadyExists", errors.FailedPrecondition, "RESOURCE_EXISTS"),
        (400, "Base.1.18.ResourceNotFound", errors.NotFound, "NOT_FOUND"),
        (404, "Base.1.18.ResourceMissingAtURI", errors.NotFound, "NOT_FOUND"),
        (507, "Base.1.18.InsufficientStorage", errors.ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (400, "Base.1.18.PropertyValueResourceConflict", errors.FailedPrecondition, Reason.INCOMPATIBLE),
        (412, "Base.1.18.PreconditionFailed", errors.Aborted, Reason.STALE_ETAG),
        (428, "Base.1.18.PreconditionRequired", errors.Unimplemented, "ETAG_REQUIRED"),
        (403, "Base.1.18.InsufficientPrivilege", errors.PermissionDenied, "PERMISSION_DENIED"),
        (401, "Base.1.18.NoValidSession", errors.Unauthenticated, messages.SESSION_ENDED),
        (401, "Base.1.0.AccessDenied", errors.Unauthenticated, "UNAUTHENTICATED"),
        (401, "Base.1.8.ResourceNotFound", errors.Unauthenticated, "UNAUTHENTICATED"),
        (403, "Base.1.18.PasswordChangeRequired", errors.Unauthenticated, "PASSWORD_CHANGE_REQUIRED"),
        (405, "Base.1.18.OperationNotAllowed", errors.Unimplemented, "UNIMPLEMENTED"),
        (400, "Base.1.18.PropertyNotWritable", errors.Unimplemented, "OTHER_FORM"),
        (409, "Composition.1.1.ResourceBlockInUse", errors.FailedPrecondition, "RESOURCE_BLOCK_IN_USE"),
        (409, "Composition.1.1.IncompatibleZone", errors.FailedPrecondition, Reason.INCOMPATIBLE),
        (400, "Composition.1.1.NoResourceMatch", errors.ResourceExhausted, Reason.NO_DEVICE),
        (400, "Contoso.1.0.Whatever", errors.InvalidArgument, "INVALID_ARGUMENT"),
        (401, "", errors.Unauthenticated, "UNAUTHENTICATED"),
        (409, "", errors.FailedPrecondition, Reason.INCOMPATIBLE),
        (410, "", errors.NotFound, "NOT_FOUND"),
        (412, "", errors.Aborted, Reason.STALE_ETAG),
        (429, "", errors.Unavailable, "SERVICE_BUSY"),
        (500, "Base.1.18.InternalError", errors.Unavailable, "HTTP_500"),
        (501, "", errors.Unimplemented, "UNIMPLEMENTED"),
        (502, "", errors.Unavailable, "HTTP_502"),
        (408, "", errors.Unavailable, "HTTP_408"),
        (423, "", errors.Unavailable, "HTTP_423"),
        (406, "", errors.FailedPrecondition, "HTTP_406"),
        (418, "", errors.FailedPrecondition, "HTTP_418"),
        (415, "", errors.InvalidArgument, "HTTP_415"),
        (422, "", errors.InvalidArgument, "HTTP_422"),
    ],
)
def test_a_refusal_is_an_error_of_the_contract(status, key, error, reason):
    refused = _refusal(status, _body(key) if key else {})
    assert (type(refused), refused.reason) == (error, reason)


def test_the_first_message_that_says_something_counts():
    body = _body(
        "Contoso.1.0.Detail",
        "Base.1.18.GeneralError",
        "Base.1.18.PreconditionFailed",
        "Base.1.18.ResourceInUse",
    )
    assert _refusal(400, body).reason == Reason.STALE_ETAG


def test_messages_stand_in_the_error_or_beside_it():
    beside = {"@Message.ExtendedInfo": _body("Base.1.18.ResourceInUse")["error"]["@Message.ExtendedInfo"]}
    assert _refusal(400, beside).reason == "RESOURCE_IN_USE"


@pytest.mark.parametrize(
    "body",
    [
        {"error": None},
        {"error": []},
        {"error": {"@Message.ExtendedInfo": 7}},
        {"error": {"@Message.ExtendedInfo": [None, 1, {"MessageId": 7, "Message": ["x"]}]}},
        {"error": {"message": {"a": 1}}},
    ],
    ids=repr,
)
def test_an_odd_body_leaves_the_status(body):
    refused = _refusal(503, body)
    assert refused.reason == "SERVICE_BUSY"
    assert "gives no reason" in refused.message


def test_an_error_beside_annotations_is_one():
    assert messages.is_refusal({"@odata.id": "/a", **_body("Base.1.4.GeneralError")})
    assert not messages.is_refusal({"Id": "a", **_body("Base.1.4.GeneralError")})


@pytest.mark.parametrize(
    ("key", "is_refusal"),
    [("Base.1.4.Success", False), ("Base.1.18.Created", False), ("Base.1.4.GeneralError", True)],
)
def test_a_success_in_the_form_of_an_error_is_none(key, is_refusal):
    """iLO answers each change so."""
    assert messages.is_refusal(_body(key)) is is_refusal


@pytest.mark.parametrize(
    ("status", "changes", "unknown"),
    [
        (500, True, True),
        (502, True, True),
        (504, True, True),
        (500, False, False),
        (501, True, False),
        (503, True, False),
        (507, True, False),
        (412, True, False),
        (400, True, False),
    ],
)
def test_only_a_failure_of_the_service_leaves_open_whether_it_changed(status, changes, unknown):
    assert _refusal(status, changes=changes).side_effects_unknown is unknown


@pytest.mark.parametrize(
    ("status", "key", "remedy"),
    [
        (503, "Base.1.18.SessionLimitExceeded", "end sessions"),
        (403, "Base.1.18.PasswordChangeRequired", "new password"),
        (401, "Base.1.18.NoValidSession", "the Fabric's Secret"),
        (403, "Base.1.18.InsufficientPrivilege", "ConfigureComponents"),
        (405, "Base.1.18.OperationNotAllowed", "`profile`"),
    ],
)
def test_a_remedy_for_administrators_is_named(status, key, remedy):
    assert remedy in _refusal(status, _body(key)).message


def test_a_message_of_the_service_stands_in_the_error_and_for_programs():
    refused = _refusal(409, _body("Base.1.18.ResourceInUse", text="The slot is in use."))
    assert "The slot is in use." in refused.message
    assert "PATCH /redfish/v1/Systems/1" in refused.message
    assert refused.vendor == {"status": "409", "message0": "Base.1.18.ResourceInUse: The slot is in use."}
    assert "See." in _refusal(409, {"error": {"message": "See."}}).message


@pytest.mark.parametrize("before", range(100, 140, 3))
def test_a_secret_across_the_cut_of_a_text_is_removed(before):
    text = "x" * before + "correct horse battery staple"

    def redact_secret(content):
        return content.replace("correct horse battery staple", "[redacted]")

    for error in (
        _refusal(400, _body("Base.1.18.GeneralError", text=text), redacted=redact_secret),
        _refusal(400, {"error": {"message": text}}, redacted=redact_secret),
        messages.failure({"Messages": [{"Message": text}]}, what="it", redacted=redact_secret),
    ):
        assert "cor" not in str((error.message, dict(error.vendor))).replace(
            "correct horse battery staple", "cor!"
        )


def test_only_the_first_messages_are_read():
    body = _body(*["Contoso.1.0.Detail"] * 50, "Base.1.18.ResourceInUse")
    assert len(messages.find_extended(body)) == messages.MESSAGES
    assert _refusal(400, body).reason == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("key", "error", "reason"),
    [
        ("Base.1.18.ResourceInUse", errors.Unavailable, "RESOURCE_IN_USE"),
        ("TaskEvent.1.0.TaskAborted", errors.Unavailable, "TASK_FAILED"),
    ],
)
def test_a_failed_task_has_unknown_effects(key, error, reason):
    failed = messages.failure(
        {"Messages": [{"MessageId": key, "Message": "No."}]}, what="POST /x", redacted=str
    )
    assert (type(failed), failed.reason, failed.side_effects_unknown) == (error, reason, True)
    assert "No." in failed.message
    assert "status" not in failed.vendor


def test_a_task_that_failed_without_a_message_is_an_error():
    assert "gives no reason" in messages.failure({}, what="POST /x", redacted=str).message


def test_a_service_that_demands_an_etag_and_shows_none_is_told_with_a_remedy():
    error = messages.refusal(428, {}, what="PATCH /z", changes=True)
    assert error.message.endswith("leave out the parameter `etags: no`, or tell the vendor")
