"""What becomes of decisions on an old view, and of writes that the API server refuses."""

import contextlib
import datetime
import types

import pytest
import yaml

from drawbar.driver import containment
from drawbar.driver.api import attachments, classic, classic_v1alpha3, fabrics
from drawbar.driver.controller import names
from drawbar.driver.controller.attachments import calls
from drawbar.driver.controller.classic import actions, claim_watch, executor
from drawbar.driver.controller.fabrics import numbers
from drawbar.driver.controller.operation import latency, metrics
from drawbar.driver.kube import client, config, errors, kinds, mirror
from drawbar.fabric import contract
from drawbar.mocks import apiserver
from drawbar.mocks.cluster import deployment

DRIVER = "drawbar.dev"
V1ALPHA3 = classic.Version.V1ALPHA3
CONTEXTS, CLAIMS = kinds.SCHEDULING_CONTEXTS[V1ALPHA3], kinds.CLASSIC_CLAIMS[V1ALPHA3]
KEY = names.DeviceKey(fabric="fab", device="gpu-0")


class Hands:
    """An executor with an API server, one context and one claim."""

    def __init__(self, api, seen):
        self.api, self.seen = api, seen

    def executor(self, api=None):
        api = api or self.api
        watch = claim_watch.ClaimWatch(
            api,
            driver=DRIVER,
            versions=frozenset({V1ALPHA3}),
            fault=lambda expression: None,
            changed=lambda: None,
            gone=lambda uid: None,
        )
        device = contract.Device(id="gpu-0", device_class=contract.DeviceClass.GPU)
        cluster = types.SimpleNamespace(
            driver=DRIVER,
            manager="drawbar-controller",
            sessions={
                "fab": types.SimpleNamespace(
                    spec=fabrics.FabricSpec(adapter="a", endpoint="e"),
                    device={"gpu-0": device}.get,
                    inventory=types.SimpleNamespace(numbers=numbers.Numbers(), host={}.get),
                )
            },
            attachments=mirror.Mirror(
                api, kinds.ATTACHMENT, into=attachments.DeviceAttachment, changed=lambda old, new: None
            ),
            fabrics={},
            contained=containment.Uncontained(),
            clock=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
            time_of_day=lambda: datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )
        context = types.SimpleNamespace(cluster=cluster, calls=calls.Calls(), latency=self.seen)
        return executor.Executor(context=context, watch=watch)

    async def create(self, kind, body):
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "p"}} | body
        return await self.api.create(kind, document, into=dict, namespace="default")

    async def answer(self):
        """Create a context, and return an answer to it."""
        await self.create(CONTEXTS, {"spec": {"potentialNodes": ["n1"]}})
        context = await self.api.read(CONTEXTS, "p", namespace="default", into=classic.PodSchedulingContext)
        return actions.Answer(context=classic.context(context, V1ALPHA3), entries=(("device", ("n1",)),))

    async def attach(self):
        """Create a claim, and return an attach of a device for it."""
        await self.create(CLAIMS, {"spec": {"controller": DRIVER, "devices": {}}})
        claim = await self.api.read(CLAIMS, "p", namespace="default", into=classic_v1alpha3.ResourceClaim)
        return actions.Attach(
            claim=classic_v1alpha3.claim(claim, DRIVER),
            key=KEY,
            pool="fab",
            request="r",
            node="n1",
            host_id="h1",
            devices=1,
            allocated_at="2026-01-01T00:00:00Z",
        )


@pytest.fixture
async def hands(tmp_path):
    async with apiserver.serving(profile="1.31-classic") as server, contextlib.AsyncExitStack() as stack:

        async def connect(user):
            server.kubeconfig(tmp_path / user, user)
            return await stack.enter_async_context(client.connecting(config.from_kubeconfig(tmp_path / user)))

        hands_ = Hands(await connect("admin"), latency.Latency(metrics.Metrics("drawbar.dev")))
        hands_.connect = connect
        for file in sorted((deployment.folder() / "drawbar/definitions").glob("*.yaml")):
            await hands_.api.create(kinds.CUSTOM_RESOURCE, yaml.safe_load(file.read_text()), into=dict)
        yield hands_


async def test_a_decision_on_an_outdated_view_delays_no_pod(hands):
    answer = await hands.answer()
    assert await hands.executor().carry_out([answer])
    # It has another version by now, then it is gone.
    assert await hands.executor().carry_out([answer])
    await hands.api.delete(CONTEXTS, "p", namespace="default")
    assert await hands.executor().carry_out([answer])


async def test_a_denied_write_is_retried_later(hands):
    stranger = await hands.connect("stranger")
    answer = await hands.answer()
    with pytest.raises(errors.Denied):
        await stranger.read(CONTEXTS, "p", namespace="default", into=dict)
    assert not await hands.executor(stranger).carry_out([answer])


async def test_an_attachment_that_could_not_be_made_leaves_no_claim_waiting_for_its_device(hands):
    attach = await hands.attach()
    assert await hands.executor().carry_out([attach])
    assert hands.seen.list_waiting(0.0) == (KEY,)
    hands.seen.clear()
    # Another controller was faster, and its watch has not told.
    assert await hands.executor().carry_out([attach])
    assert hands.seen.list_waiting(0.0) == ()
