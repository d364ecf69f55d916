"""`recoup suggest`."""
