"""The command ``poise``: one verb a rule, and the verbs that users type."""

from poise.cli.main import main

__all__ = ["main"]
