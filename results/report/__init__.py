"""The report of a run, as one HTML page and as Markdown with pictures."""
