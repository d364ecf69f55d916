"""`recoup run`."""
