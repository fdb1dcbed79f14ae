"""The bench: which cases, one case from top to bottom, the judgement, the commands."""
