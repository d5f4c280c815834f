"""Runs, resumes and sessions for hours, on a machine whose disk, memory and clock misbehave."""
