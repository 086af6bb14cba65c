"""From experiment files to runs, tables and reports."""

from fedbandit.extras import needs

needs("fedbandit.experiments", "sim")
