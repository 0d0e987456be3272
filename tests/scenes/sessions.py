"""Where the tests of a session with a fabric begin: a Fabric, and somebody who is told of it and does nothing."""

from drawbar.driver.api import fabrics, meta

FABRIC = fabrics.Fabric(
    metadata=meta.ObjectMeta(name="f"), spec=fabrics.FabricSpec(adapter="here", endpoint="e")
)


class Listener:
    """Wants to know nothing."""

    def device_changed(self, fabric, old, new):
        """Not asked for here."""

    def hosts_changed(self, fabric):
        """Not asked for here."""

    def operation_changed(self, fabric, operation):
        """Not asked for here."""

    def turn_came(self, key):
        """Not asked for here."""

    def witnesses(self, fabric):
        """Nothing is attached."""
        return {}

    def published(self, fabric):
        """Nothing was published before."""
        return ()

    def troubles_changed(self, fabric):
        """Not asked for here."""

    def connection_changed(self, fabric):
        """Not asked for here."""
