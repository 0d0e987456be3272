"""ValidatingAdmissionPolicies: the policies for a write, and their verdicts.

A policy applies if a binding names it. Its ``matchConstraints``, the binding's ``matchResources`` and its
``matchConditions`` must match; then every validation must hold. Expressions see ``object``, ``oldObject``, ``request``
(with ``userInfo`` and its ``extra``, which has the node of a service account's token), ``namespaceObject`` and
``variables``.

A policy with ``paramKind`` is evaluated once for each object found by the binding's ``paramRef``. If there is none,
``parameterNotFoundAction`` decides. If the kind is unknown, the failure policy decides.

Limits: no audit annotations, no ``authorizer`` variable, and no delay until a new policy or parameter takes effect.
Policies do not apply to policies and their bindings, nor to the server's own writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drawbar.mocks.apiserver import admissionrules, errors, expressions
from drawbar.mocks.apiserver.admissionrules import Attempt
from drawbar.mocks.apiserver.resources import ADMISSION_GROUP, Catalogue, ResourceType
from drawbar.mocks.apiserver.storage import Store

Json = dict[str, Any]

POLICIES = (ADMISSION_GROUP, "validatingadmissionpolicies")
BINDINGS = (ADMISSION_GROUP, "validatingadmissionpolicybindings")
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A failed validation, or one that could not be evaluated."""

    message: str
    reason: str = "Invalid"


class Policies:
    """The stored policies, applied to writes."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        """Use the policies and bindings in ``store`` at the time of each check."""
        self._store = store
        self._catalogue = catalogue

    def check(self, attempt: Attempt) -> list[str]:
        """Check a write; return the warnings for the answer.

        Raises:
            ApiError: a policy that is bound with ``Deny`` refuses it (422 unless the policy says otherwise).
        """
        bindings = self._store.collection(BINDINGS).items
        if not bindings or attempt.call.resource.where in (POLICIES, BINDINGS):
            return []
        warnings: list[str] = []
        for binding in bindings.values():
            spec = binding["spec"]
            policy = self._store.collection(POLICIES).items.get(("", spec["policyName"]))
            if policy is None or not self._concerns(attempt, policy, spec):
                continue
            names = policy["metadata"]["name"], binding["metadata"]["name"]
            denials = list(self._find_denials(attempt, policy["spec"], spec))
            if denials and "Deny" in spec["validationActions"]:
                raise _refusal(attempt, names, denials[0])
            if denials and "Warn" in spec["validationActions"]:
                prefix = (
                    f"Validation failed for ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}'"
                )
                warnings += [f"{prefix}: {denial.message}" for denial in denials]
        return warnings

    def _find_denials(self, attempt: Attempt, policy: Json, binding: Json) -> Iterator[Denial]:
        """Yield a policy's denials of a write, under each of its parameters."""
        variables = self._variables(attempt)
        kind = policy.get("paramKind")
        if not kind:
            yield from judge(policy, variables)
            return
        fails = (policy.get("failurePolicy") or "Fail") == "Fail"
        reference = binding.get("paramRef") or {}
        resource = self._parameter_kind(kind)
        if resource is None:
            if fails:
                wanted = f"{kind.get('apiVersion')}, Kind={kind.get('kind')}"
                yield Denial(
                    message=f"failed to configure binding: failed to find resource referenced by paramKind: '{wanted}'"
                )
            return
        parameters = list(self._parameters(attempt, resource, reference))
        if not parameters and fails and reference.get("parameterNotFoundAction") != "Allow":
            yield Denial(
                message="failed to configure binding: no params found for policy binding with `Deny`"
                " parameterNotFoundAction"
            )
        for item in parameters:
            yield from judge(policy, {**variables, "params": item})

    def _parameter_kind(self, kind: Json) -> ResourceType | None:
        group, _, version = (kind.get("apiVersion") or "").rpartition("/")
        for resource in self._catalogue.all():
            if (resource.group, resource.kind) == (group, kind.get("kind")) and version in resource.versions:
                return resource
        return None

    def _parameters(self, attempt: Attempt, resource: ResourceType, reference: Json) -> Iterator[Json]:
        namespace = (reference.get("namespace") or attempt.call.namespace) if resource.namespaced else ""
        selector = reference.get("selector") or {}
        for (home, name), item in self._store.collection(resource.where).items.items():
            labels = (item.get("metadata") or {}).get("labels") or {}
            named = home == namespace and name == (reference.get("name") or name)
            if named and admissionrules.selects(selector, labels):
                yield resource.convert_to_version(item, resource.versions[0])

    def _concerns(self, attempt: Attempt, policy: Json, binding: Json) -> bool:
        labels = self._namespace_labels(attempt)
        constraints = policy["spec"].get("matchConstraints") or {}
        if not admissionrules.fits(attempt, constraints, labels):
            return False
        resources = binding.get("matchResources")
        return resources is None or admissionrules.fits(attempt, resources, labels)

    def _namespace(self, attempt: Attempt) -> Json | None:
        return self._store.collection(("", "namespaces")).items.get(("", attempt.call.namespace))

    def _namespace_labels(self, attempt: Attempt) -> dict[str, str] | None:
        """Return the labels of the request's namespace; None for cluster-wide objects."""
        if attempt.call.resource.where == ("", "namespaces"):
            item = attempt.new or attempt.old or {}
            return (item.get("metadata") or {}).get("labels") or {}
        if not attempt.call.resource.namespaced:
            return None
        return ((self._namespace(attempt) or {}).get("metadata") or {}).get("labels") or {}

    def _variables(self, attempt: Attempt) -> Json:
        namespace = self._namespace(attempt) if attempt.call.resource.namespaced else None
        shown = (
            self._catalogue.get("", "namespaces").convert_to_version(namespace, "v1") if namespace else None
        )
        return {**attempt.variables(), "namespaceObject": shown, "params": None}


def judge(policy: Json, variables: Json) -> Iterator[Denial]:
    """Yield a policy's denials of a write with these variables."""
    fails = (policy.get("failurePolicy") or "Fail") == "Fail"
    for condition in policy.get("matchConditions") or ():
        try:
            if expressions.evaluate(condition["expression"], variables) is not True:
                return
        except expressions.EvaluationError as error:
            if fails:
                yield Denial(message=f"failed to evaluate match condition '{condition['name']}': {error}")
            return
    values: Json = {}
    failed: dict[str, str] = {}
    for variable in policy.get("variables") or ():
        name = variable["name"]
        try:
            values[name] = expressions.evaluate(variable["expression"], {**variables, "variables": values})
        except expressions.EvaluationError as error:
            # Only an expression that uses the variable fails.
            failed[f"no such key: {name}"] = f'composited variable "{name}" fails to evaluate: {error}'
    for validation in policy.get("validations") or ():
        yield from _validation(validation, {**variables, "variables": values}, failed, fails=fails)


def _validation(
    validation: Json, variables: Json, failed: Mapping[str, str], *, fails: bool
) -> Iterator[Denial]:
    text, reason = validation["expression"], validation.get("reason") or "Invalid"
    try:
        holds = expressions.evaluate(text, variables)
    except expressions.EvaluationError as error:
        if fails:
            why = failed.get(str(error), str(error))
            yield Denial(message=f"expression '{text}' resulted in error: {why}")
        return
    if holds is True:
        return
    message = validation.get("message") or f"failed expression: {' '.join(text.split())}"
    if validation.get("messageExpression"):
        try:
            computed = expressions.evaluate(validation["messageExpression"], variables)
        except expressions.EvaluationError:
            computed = None  # the plain message stands in
        message = computed.strip() if isinstance(computed, str) and computed.strip() else message
    yield Denial(message=message.strip(), reason=reason)


def _refusal(attempt: Attempt, names: tuple[str, str], first: Denial) -> errors.ApiError:
    resource = attempt.call.resource
    text = f"ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}' denied request: {first.message}"
    error = errors.forbidden_error(resource.plural, resource.group, attempt.name, text)
    details = {**error.details, "causes": [{"message": text}]}
    code = _CODES.get(first.reason, 422)
    return errors.ApiError(code=code, reason=first.reason, message=error.message, details=details)
