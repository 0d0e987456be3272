"""The conformance suite: one judge for every adapter, ours and other people's."""

from drawbar.fabric.conformance.checks import CHECKS, Check
from drawbar.fabric.conformance.reports import Outcome, Report, Verdict, junit
from drawbar.fabric.conformance.suite import check

__all__ = ["check", "CHECKS", "Check", "Report", "Outcome", "Verdict", "junit"]
