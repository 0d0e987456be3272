"""The conformance suite: one judge for every adapter, ours and other people's."""

from drawbar.fabric.conformance.checks import CHECKS, Check
from drawbar.fabric.conformance.suite import Outcome, Report, Verdict, check

__all__ = ["check", "CHECKS", "Check", "Report", "Outcome", "Verdict"]
