"""Who else acts in a cluster with classic allocation: people, kube-controller-manager and the scheduler.

The scheduler is that of the proposal's pseudo-code. It does not emulate: other drivers' claims, priorities, kubelets.
"""

import pytest

from drawbar.driver.api import claims, classic, handles
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import claim_requests


class Players:
    """They write what the state, which this is mixed into, keeps."""

    # What people do.

    def claim(
        self, name, *asked, immediate=False, owner="", shareable=False, problem="", nodes_=(), namespace="ns"
    ):
        uid = f"c{next(self.numbers)}"
        key = classic.Name(namespace=namespace, name=name)
        self.claims[key] = classic.Claim(
            version=classic.Version.V1ALPHA2,
            name=key,
            uid=uid,
            resource_version=str(next(self.numbers)),
            finalizer=classic.finalizer("drawbar.dev"),
            created=self._stamp(),
            class_name="class",
            immediate=immediate,
            owner_uids=(owner,) if owner else (),
        )
        self.wanted[uid] = claim_requests.ClaimRequests(
            requests=asked or (matching.Request(name=handles.WHOLE_CLAIM),),
            shareable=shareable,
            problem=problem,
            suitable_nodes=nodes_,
        )
        return self.claims[key]

    def pod(self, name, *claim_names, fits=None, template=()):
        """Add a pod, and make the claims that `template` names for it; return the pod."""
        key = classic.Name(namespace="ns", name=name)
        uid = f"p{next(self.numbers)}"
        entries = {name: name for name in claim_names}
        for entry, asked in dict(template).items():
            entries[entry] = f"{name}-{entry}"
            self.claim(entries[entry], *asked, owner=uid)
        self.pods[key] = classic.Pod(
            name=key,
            uid=uid,
            created=self._stamp(),
            claims=entries,
            from_template=frozenset(dict(template)),
        )
        self.fits[uid] = set(self.nodes) if fits is None else set(fits)
        return self.pods[key]

    def delete_pod(self, name):
        """Delete the pod, its contexts and the claims that it owns."""
        key = classic.Name(namespace="ns", name=name)
        pod = self.pods.pop(key)
        self.bound.pop(pod.uid, None)
        for context in [context for context in self.contexts.values() if pod.uid in context.pod_uids]:
            del self.contexts[context.uid]
        for claim in list(self.claims.values()):
            if pod.uid in claim.owner_uids:
                self.delete_claim(claim.name.name)

    def delete_claim(self, name):
        key = classic.Name(namespace="ns", name=name)
        self._change(self.claims[key], deleting=True)

    # What kube-controller-manager does.

    def clean_up(self):
        """Remove consumers that are gone, and ask claims without consumers back, unless they were allocated at once."""
        alive = {pod.uid for pod in self.pods.values()}
        for claim in list(self.claims.values()):
            left = tuple(consumer for consumer in claim.reserved_for if consumer.uid in alive)
            if left != claim.reserved_for:
                asked = claim.deallocation_requested or (
                    not left and claim.allocation is not None and not claim.immediate
                )
                self._change(claim, reserved_for=left, deallocation_requested=asked)

    # What the scheduler does.

    def schedule(self, pick=min):
        """Try once to schedule each pod that is not bound."""
        for pod in list(self.pods.values()):
            if pod.uid not in self.bound:
                self._schedule(pod, pick)

    def _schedule(self, pod, pick):
        by_entry = {entry: self._claim_of(pod, name) for entry, name in pod.claims.items()}
        if any(claim is None or claim.deleting for claim in by_entry.values()):
            return
        context = self.context_of(pod)
        pending = {entry for entry, claim in by_entry.items() if claim.allocation is None}
        if any(claim.immediate for entry, claim in by_entry.items() if entry in pending):
            return
        allocated = [claim for claim in by_entry.values() if claim.allocation is not None]
        if any(claim.deallocation_requested for claim in by_entry.values()):
            return
        if any(not self._usable(claim, pod) for claim in allocated):
            return
        unsuitable = {
            node for entry in pending for node in (context.entries if context else {}).get(entry, ())
        }
        reach = [node for node in sorted(self.fits[pod.uid] & self.nodes.keys()) if node not in unsuitable]
        here = [node for node in reach if all(claim.allocation.node in (None, node) for claim in allocated)]
        if not here:
            mine = [claim for claim in allocated if not claim.immediate and self._is_unused(claim, pod)]
            if mine:
                self.deallocations += 1
                self._change(
                    pick(mine, key=lambda claim: claim.uid), deallocation_requested=True, reserved_for=()
                )
        elif not pending:
            self._bind(pod, allocated, pick(here))
        else:
            self._ask(pod, context, pending, here, pick)

    def _ask(self, pod, context, pending, here, pick):
        offered = tuple(here[: self.window])
        selected = context.selected_node if context else ""
        informed = context is not None and pending <= context.entries.keys()
        if len(pending) == 1 or informed:
            selected = selected if selected in here else pick(here)
        if context is None:
            uid = f"x{next(self.numbers)}"
            context = classic.Context(
                version=classic.Version.V1ALPHA2,
                name=pod.name,
                uid=uid,
                resource_version="0",
                pod_uids=(pod.uid,),
            )
        if (context.potential_nodes, context.selected_node) != (offered, selected):
            self._put_context(context, potential_nodes=offered, selected_node=selected)

    def _usable(self, claim, pod):
        mine = any(consumer.uid == pod.uid for consumer in claim.reserved_for)
        return mine or not claim.reserved_for or self.shareable[claim.uid]

    def _is_unused(self, claim, pod):
        return all(consumer.uid == pod.uid for consumer in claim.reserved_for)

    def _bind(self, pod, allocated, node):
        for claim in allocated:
            if all(consumer.uid != pod.uid for consumer in claim.reserved_for):
                consumer = claims.Consumer(resource="pods", name=pod.name.name, uid=pod.uid)
                self._change(claim, reserved_for=(*claim.reserved_for, consumer))
        self.bound[pod.uid] = node
        for context in [context for context in self.contexts.values() if pod.uid in context.pod_uids]:
            del self.contexts[context.uid]

    def select(self, pod, node, potential=()):
        """Select a node for the pod, as the scheduler or kube-controller-manager does."""
        context = self.context_of(pod) or classic.Context(
            version=classic.Version.V1ALPHA2,
            name=pod.name,
            uid=f"x{next(self.numbers)}",
            resource_version="0",
            pod_uids=(pod.uid,),
        )
        self._put_context(context, selected_node=node, potential_nodes=tuple(potential))

    def _claim_of(self, pod, name):
        return self.claims.get(classic.Name(namespace="ns", name=name))

    def context_of(self, pod):
        return next((context for context in self.contexts.values() if pod.uid in context.pod_uids), None)


@pytest.fixture
def world(state):
    """Return the class of a cluster, used as `world(devices=2, ports=1)`."""
    return type("World", (Players, state), {})
