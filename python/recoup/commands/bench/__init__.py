"""`recoup bench`."""
