"""What a request has been given that goes without a device: it is always here, and touches no hardware."""

from dataclasses import dataclass

from drawbar.cdi import spec
from drawbar.driver.node.local import nulls
from drawbar.driver.node.preparation import records


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """The null device in one claim; stands beside `finding.Found`.

    Attributes:
        record: what is recorded of it.
        claim_uid: of the claim that it is for.
    """

    record: records.PreparedDevice
    claim_uid: str

    @property
    def interfaces(self) -> None:
        """It never has any."""
        return None

    @property
    def asks_the_driver(self) -> bool:
        """There is no driver."""
        return False

    def content(self) -> spec.Device:
        """What a container gets."""
        return nulls.content(self.claim_uid, self.record.requests)
