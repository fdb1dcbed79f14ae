"""What people see of a run: tables in the terminal, the report, exports."""
