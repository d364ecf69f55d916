"""`recoup simulate`."""
