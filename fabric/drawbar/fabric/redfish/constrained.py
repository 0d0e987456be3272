"""Connections by constrained composition: a system asks for a device by count and model, and the service chooses it.

The collection of systems names a Capabilities object with the properties that describe a device (DSP0266,
"Constrained composition"). A PATCH changes an existing system, always under the ETag of its reading, so that a
request is never made twice. Devices are removed as in specific composition.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

from drawbar.fabric import contract, errors
from drawbar.fabric.redfish import calls, composition, documents, profiles, reading, views
from drawbar.fabric.redfish.documents import Document, Json
from drawbar.fabric.redfish.reading import Reader

CAPABILITIES = "@Redfish.CollectionCapabilities"
USE_CASE = "ComputerSystemConstrainedComposition"
COUNT = "@Redfish.RequestedCount"
_REQUIRED, _OPTIONAL = "@Redfish.RequiredOnCreate", "@Redfish.OptionalOnCreate"


class Constrained(composition.Composition):
    """The method `constrained`; see `methods.Method`."""

    def __init__(self, profile: profiles.Profile) -> None:
        super().__init__(profile)
        self._templates: Mapping[str, Json] = {}

    async def read(self, reader: Reader) -> None:
        """Read all resources; see `methods.Method`."""
        is_linked = reader.root.link("Systems") is not None
        systems = await reading.read_linked(reader.root, "Systems", reader.get) if is_linked else None
        listed = systems.objects(CAPABILITIES, "Capabilities") if systems is not None else ()
        offered = next((entry for entry in listed if entry.get("UseCase") == USE_CASE), {})
        capabilities = documents.link(offered.get("CapabilitiesObject"))
        if capabilities is None:
            raise errors.Unimplemented(
                "the Redfish service offers no constrained composition; choose another `profile`"
            )
        self._templates = templates(await reader.get(capabilities))
        await super().read(reader)

    def view(self) -> views.View:
        """Return the devices and hosts of the last reading; see `methods.Method`; a device that cannot be asked for is left out while it is free."""
        view = super().view()
        unasked = {
            device.id
            for device in view.devices.values()
            if device.connection is None and self._request(device) is None
        }
        oddities = tuple(
            f"the resource block {device_id} cannot be asked for by its model, as the service's capabilities have it"
            for device_id in sorted(unasked)
        )
        devices = {name: device for name, device in view.devices.items() if name not in unasked}
        return replace(view, devices=devices, oddities=(*view.oddities, *oddities))

    def is_at(self, uris: Set[str], host_id: str) -> bool:
        """Return whether a change of these URIs is one of the host."""
        system = self._read.systems.get(host_id)
        return system is not None and system.uri in uris

    def attach(self, request: contract.AttachRequest, device_id: str, port_id: str) -> calls.Call:
        """Return the request for a device like this one."""
        del port_id
        system, device = self._read.systems.get(request.host_id), self._read.devices.get(device_id)
        if system is None:
            raise calls.build_gone_error("host", request.host_id)
        body = self._request(device) if device is not None else None
        if body is None:
            raise calls.build_gone_error("device", device_id)
        return calls.Call(method="PATCH", uri=system.uri, body=body, etag=system.etag, is_shared=True)

    def _request(self, device: contract.Device) -> Json | None:
        name, part = self._read.parts.get(device.id, ("", Document(uri="")))
        template = self._templates.get(name)
        described = member(template, part, device.model) if template is not None and device.model else None
        if described is None:
            return None
        if name == "Drives":
            return {"Storage": {"Members": [{COUNT: 1, "Drives": [described]}]}}
        return {name: {"Members": [described]}}


def templates(capabilities: Document) -> Mapping[str, Json]:
    """Return the service's description of one part in each array of parts, by the array's name."""
    listed = {
        "Processors": capabilities.objects("Processors", "Members"),
        "Memory": capabilities.objects("Memory", "Members"),
        "Drives": tuple(
            drive
            for storage in capabilities.objects("Storage", "Members")
            for drive in documents.objects(storage, "Drives")
        ),
    }
    return {name: members[0] for name, members in listed.items() if members}


def member(template: Json, part: Document, model: str) -> Json | None:
    """Return the description of one more part of the model, or None if the service does not accept one.

    It has the model and all required properties, with the part's values.
    """
    required = [name.removesuffix(_REQUIRED) for name in template if name.endswith(_REQUIRED)]
    optional = [name.removesuffix(_OPTIONAL) for name in template if name.endswith(_OPTIONAL)]
    if "Model" not in (*required, *optional):
        return None
    shown = {name: part.value(name) for name in required} | {"Model": model}
    return None if None in shown.values() else {COUNT: 1, **shown}
