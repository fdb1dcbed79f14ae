"""Results: exact numbers from a history, the run folder, tables and the live view.

Works from saved histories and case dictionaries alone; knows no lock and no cluster.
"""
