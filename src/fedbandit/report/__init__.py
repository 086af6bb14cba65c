"""A report for a steering committee: one page that stands alone, and tables; from a site that runs, or has stopped."""

from fedbandit.report.facts import Facts, of_agent, of_folder
from fedbandit.report.page import page_of
from fedbandit.report.tables import tables_of

__all__ = ["Facts", "of_agent", "of_folder", "page_of", "tables_of"]
