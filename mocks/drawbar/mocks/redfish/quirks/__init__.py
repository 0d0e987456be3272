"""Observed deviations of Redfish servers from the specification, by name."""

from drawbar.mocks.redfish.quirks.quirk import ALL, Form, Quirk, Setting, form
from drawbar.mocks.redfish.quirks.registry import CONTRADICTORY, QUIRKS, choose, exchange

__all__ = ["ALL", "CONTRADICTORY", "QUIRKS", "Form", "Quirk", "Setting", "choose", "exchange", "form"]
