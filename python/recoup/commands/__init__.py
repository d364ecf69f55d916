"""The command line `recoup`. No other part of the package imports it."""
