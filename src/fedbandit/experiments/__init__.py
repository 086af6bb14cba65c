"""From experiment files to runs, tables and reports."""
