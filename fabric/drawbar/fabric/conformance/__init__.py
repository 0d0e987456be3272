"""The conformance suite: checks of the contract for every adapter, including other vendors'."""

from drawbar.fabric.conformance.checks import CHECKS, Check
from drawbar.fabric.conformance.reports import Outcome, Report, Verdict, junit
from drawbar.fabric.conformance.suite import check

__all__ = ["check", "CHECKS", "Check", "Report", "Outcome", "Verdict", "junit"]
