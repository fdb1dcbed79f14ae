"""Evidence that outlives a run: the track record, what was observed of each lock, bug reports,
decision records, and the comparison of two sides of a change.
"""
