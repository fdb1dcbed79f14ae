"""The bench: which cases there are, one case from start to end, and the judgement of it."""
