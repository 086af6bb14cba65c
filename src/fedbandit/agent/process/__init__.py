"""The process of a live site: its configuration, clocks, logs, and what runs it."""
