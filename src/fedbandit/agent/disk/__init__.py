"""A site's files: its journal, transactions shared by concurrent events, and secret files."""
