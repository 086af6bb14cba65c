"""The command line: arguments, tables and errors, nothing else."""

from fedbandit.cli.commands import app, main

__all__ = ["app", "main"]
