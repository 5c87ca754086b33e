"""The report of a run."""

from swarm.report.page import write_report

__all__ = ["write_report"]
