"""Results: exact numbers from a history, the run folder and its documents.

Works from saved histories and documents alone; knows no lock and no cluster.
"""
