"""The candidates for a claim without an allocation, by the selectors of its requests and their classes."""

from collections.abc import Iterable

from drawbar.driver import evaluation
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.explain import observed
from drawbar.driver.cli.status import observed as status
from drawbar.driver.cli.status import tree
from drawbar.driver.kube import kinds

DEVICES_MOST = 10_000
"""The most devices that a request is evaluated for."""


class Chooser:
    """A search for the devices of requests; it reads each DeviceClass once.

    Attributes:
        unread: the classes that could not be read.
    """

    def __init__(self, reader: Reader, evaluator: evaluation.Evaluator, driver: str) -> None:
        self._reader = reader
        self._evaluator = evaluator
        self._driver = driver
        self._classes: dict[str, observed.DeviceClass | Unread | None] = {}
        self.unread: list[Unread] = []

    async def choose(
        self, claim: observed.Claim, cluster: status.Cluster, shown: Iterable[tree.Device]
    ) -> tuple[observed.Choice, ...]:
        """Return the choice of each alternative of each request, without those whose class cannot be read."""
        result = []
        for request in claim.spec.devices.requests:
            for alternative in request.alternatives:
                device_class = await self._class(alternative.device_class_name)
                if not isinstance(device_class, Unread):
                    result.append(await self._choice(request.name, alternative, device_class, cluster, shown))
        return tuple(result)

    async def _class(self, name: str) -> observed.DeviceClass | Unread | None:
        if name not in self._classes:
            found = await self._reader.find(kinds.DEVICE_CLASS, name, into=observed.DeviceClass)
            if isinstance(found, Unread):
                self.unread.append(found)
            self._classes[name] = found
        return self._classes[name]

    async def _choice(
        self,
        request: str,
        alternative: observed.Alternative,
        device_class: observed.DeviceClass | None,
        cluster: status.Cluster,
        shown: Iterable[tree.Device],
    ) -> observed.Choice:
        published = observed.index_devices(cluster)
        left = [device for device in shown if (device.pool, device.name) in published][:DEVICES_MOST]
        common = device_class.spec.selectors if device_class is not None else ()
        fault, is_class_at_fault = "", False
        for number, selector in enumerate((*common, *alternative.selectors)):
            outcome = await self._evaluator.evaluate(
                selector.cel.expression,
                self._driver,
                tuple(published[device.pool, device.name] for device in left),
            )
            met = [device for device, answer in zip(left, outcome.answers, strict=False) if answer.met]
            # Other devices may match although the expression fails on some.
            first = next((answer.fault for answer in outcome.answers if answer.fault), "")
            fault = outcome.fault or ("" if met else first)
            if fault:
                is_class_at_fault = number < len(common)
                break
            left = met
        matching = () if fault or device_class is None else tuple(left)
        return observed.Choice(
            request=request,
            class_name=alternative.device_class_name,
            has_class=device_class is not None,
            matching=matching,
            fault=fault,
            is_class_at_fault=is_class_at_fault,
            count=max(len(matching), 1) if alternative.allocation_mode == "All" else alternative.count,
            is_shared=alternative.admin_access,
            tolerations=alternative.tolerations,
        )
