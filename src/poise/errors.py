"""The one exception a user is meant to read."""

from __future__ import annotations


class PoiseError(Exception):
    """A mistake of the user's or of their data, told in one line.

    The message names what is wrong, where, what was found and what was expected. The command line prints it
    without a traceback (that goes to the job's log) and exits with status 2.
    """
