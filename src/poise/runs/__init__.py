"""What a user sees of a run: its logs, progress and outcome, the report, what is left to do, what may go."""
