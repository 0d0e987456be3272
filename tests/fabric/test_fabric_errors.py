import pytest

from drawbar.fabric import contract, errors


def test_every_code_has_exactly_one_error():
    assert set(errors.BY_CODE) == set(errors.Code)
    assert all(kind.code is code for code, kind in errors.BY_CODE.items())


@pytest.mark.parametrize("code", sorted(errors.Code))
def test_every_error_belongs_to_exactly_one_group(code):
    groups = (errors.Refused, errors.Transient, errors.Misconfigured)
    assert sum(issubclass(errors.BY_CODE[code], group) for group in groups) == 1


def test_only_transient_errors_are_retryable_by_default():
    retryable = {code for code, kind in errors.BY_CODE.items() if kind("x").retryable}
    assert retryable == {errors.Code.ABORTED, errors.Code.UNAVAILABLE, errors.Code.DEADLINE_EXCEEDED}


def test_after_a_passed_deadline_the_effects_are_unknown():
    assert errors.DeadlineExceeded("x").side_effects_unknown
    assert not errors.Unavailable("x").side_effects_unknown


def test_the_reason_defaults_to_the_code():
    assert errors.NotFound("x").reason == "NOT_FOUND"
    assert errors.FailedPrecondition("x", reason=errors.Reason.IN_USE).reason == "IN_USE"


def test_foreign_text_is_cut_without_breaking_characters():
    error = errors.Unavailable("ä" * 2000, vendor={f"{number:02}" * 200: "é" * 1000 for number in range(40)})
    assert len(error.message.encode()) <= errors.MESSAGE_BYTES
    assert error.message.endswith("…")
    assert len(error.vendor) == errors.VENDOR_ENTRIES
    total = sum(len(key.encode()) + len(value.encode()) for key, value in error.vendor.items())
    assert total <= 4096


def test_a_wrong_configuration_lists_all_problems():
    error = errors.InvalidConfiguration(["a is wrong", "b is wrong"])
    assert error.problems == ("a is wrong", "b is wrong")
    assert str(error) == "a is wrong; b is wrong"


def test_an_operation_gives_its_error_back_as_it_was():
    error = errors.FailedPrecondition(
        "held", reason=errors.Reason.IN_USE, host_id="h1", retryable=True, vendor={"code": "17"}
    )
    operation = contract.Operation(
        id="o",
        request_id="r",
        kind=contract.OperationKind.ATTACH,
        done=True,
        error=contract.OperationError.from_error(error),
        side_effects_unknown=True,
    )
    again = operation.failure()
    assert isinstance(again, errors.FailedPrecondition)
    assert (again.message, again.reason, again.host_id, again.retryable, again.vendor) == (
        "held",
        "IN_USE",
        "h1",
        True,
        {"code": "17"},
    )
    assert again.side_effects_unknown
    assert not operation.succeeded
