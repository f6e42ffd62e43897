"""Poise: LLM classifiers that are fair to every class and steady under rearranged prompts."""

__version__ = "0.1.0"
