"""What a site keeps on disk: its journal, transactions shared by concurrent events, and secret files."""
