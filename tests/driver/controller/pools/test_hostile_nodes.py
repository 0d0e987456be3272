"""What a node may write, and that it stays about the devices of that node: whatever it is, the API server takes the slices."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes.pools import NOW, device, make_fabric_state

from drawbar.driver.api import attachments, bindings, meta, slices
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import outcomes
from drawbar.driver.controller.attachments import statements
from drawbar.driver.controller.pools import desired, fabric_state
from drawbar.driver.slices import encoding
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.apiserver.validation import conditions as condition_rules
from drawbar.mocks.apiserver.validation import slices as slice_rules
from drawbar.mocks.apiserver.validation import taints as taint_rules

CLAIM = attachments.ClaimReference(namespace="n", name="c", uid="u")
HOSTILE, OTHERS = "a", ("b", "c", "d")
DEVICES = (device("a", "e1"), device("b", "e1"), device("c", "e2"), device("d", "e3"))
PROFILE = profiles.profile("1.36")

words = st.text(max_size=100) | st.sampled_from(
    [
        "no label value: it has blanks and a colon",
        "x" * 100_000,
        "maintenance",
        "attach-failed",
        "-",
        "\x00",
        *sorted(outcomes.NODE_FAILURES),
        *sorted(outcomes.BLOCKERS),
    ]
)
conditions = st.builds(
    meta.Condition,
    type=st.sampled_from([attachments.VISIBLE, attachments.RELEASED]) | words,
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=words,
    message=words,
    last_transition_time=words,
)
findings = st.builds(attachments.NodeFinding, name=words, value=words, effect=words, message=words)
reports = st.builds(
    attachments.NodeReport,
    pci_address=words,
    kernel_driver=words,
    boot_id=words,
    slot=words,
    health=st.sampled_from(["Healthy", attachments.UNHEALTHY]) | words,
    health_message=words,
    findings=st.lists(findings, max_size=40).map(tuple),
    claim_uid=words,
    allocation_timestamp=words,
)


@st.composite
def hostile(draw, **spec):
    """Return a DeviceAttachment of which the node has written what it likes."""
    attached = [meta.Condition(type=attachments.ATTACHED, status="True")] if draw(st.booleans()) else []
    status = attachments.AttachmentStatus(
        phase=draw(words),
        conditions=(*attached, *draw(st.lists(conditions, max_size=8))),
        node=draw(st.none() | reports),
    )
    fields = {"fabric": "f", "pool": "f/e1", "claim": CLAIM, "device": HOSTILE} | spec
    return scenes.attachment(status=status, deleting=draw(st.booleans()), **fields)


def plan_slices(attached, form, listed=DEVICES):
    """Return the slices of the Fabric, by name."""
    base = make_fabric_state(*listed, form=form)
    seen = fabric_state.observe(base.driver, base.facts, attached, (), base.kept, date=NOW)
    return {
        action.slice.metadata.name: action.slice
        for action in desired.plan(seen, NOW)
        if not isinstance(action, desired.LookAgain | desired.LeftOut)
    }


def problems(wanted_slices):
    """Return what the API server has against the slices."""
    specs = [slices.document(wanted_slice)["spec"] for wanted_slice in wanted_slices.values()]
    return [
        str(cause)
        for spec in specs
        for cause in (
            slice_rules.validate(spec, PROFILE)
            if "taints" not in spec
            else taint_rules.check_slice_taints(spec)
        )
    ]


@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, encoding.Encoding.TAINT_SLICE])
@given(attachment=hostile())
def test_a_hostile_node_changes_no_other_device_and_writes_stay_valid(form, attachment):
    before, after = plan_slices([], form), plan_slices([attachment], form)
    assert problems(after) == []
    assert before.keys() == after.keys()
    for name in OTHERS:
        assert of_device(after, name) == of_device(before, name)


def of_device(wanted_slices, name):
    """Return a device as it is published, with its taints."""
    listed = tuple(wanted_slices.values())
    (published,) = (entry for each in listed for entry in each.spec.devices if entry.name == name)
    return msgspec.structs.replace(published, taints=()), encoding.taints_of(listed, name)


@given(attachment=hostile())
def test_any_problem_written_by_a_node_fits_the_claims_condition(attachment):
    problem = outcomes.problem(attachment)
    if problem is None:
        return
    assert problem.reason in outcomes.FAILURES | {reasons.OTHER}
    failed = meta.transition(
        (),
        bindings.ATTACH_FAILED,
        status=True,
        reason=problem.reason,
        message=problem.message,
        now="2026-01-01T00:00:00Z",
    )
    assert list(condition_rules.validate([msgspec.to_builtins(failed)], "c")) == []
    recorded = statements.build_failed(attachment, attachments.OperationRecord(request_id="r"), problem, NOW)
    assert len(recorded["status"]["error"]["message"]) <= meta.MESSAGE_CHARS


SHARE = attachments.Share(device="b", device_id="b", share_id="s", memory_bytes=1)


@pytest.mark.parametrize("form", [encoding.Encoding.PER_DEVICE, encoding.Encoding.TAINT_SLICE])
@given(attachment=hostile(device="share-1", share=SHARE))
def test_a_nodes_report_on_one_share_leaves_other_shares_untainted(form, attachment):
    if not attachment.holds(attachments.ATTACHED):
        return
    assert of_device(plan_slices([attachment], form), "b")[1] == ()


def test_a_node_with_many_findings_leaves_the_others_room_for_their_taints():
    listed = tuple(device(f"d{number}") for number in range(20))
    everything = tuple(
        attachments.NodeFinding(name=f"f{number}", effect=encoding.NO_EXECUTE)
        for number in range(attachments.FINDINGS_MAX)
    )
    attached = [
        scenes.attachment(
            attachments.ATTACHED,
            fabric="f",
            device=name,
            claim=CLAIM,
            node=attachments.NodeReport(findings=findings_of_node),
        )
        for name, findings_of_node in (
            ("d0", everything),
            ("d1", everything),
            ("d19", (attachments.NodeFinding(name="ill", effect=encoding.NO_SCHEDULE),)),
        )
    ]
    published = plan_slices(attached, encoding.Encoding.TAINT_SLICE, listed)
    assert [taint.key for taint in of_device(published, "d19")[1]] == ["drawbar.dev/ill"]
