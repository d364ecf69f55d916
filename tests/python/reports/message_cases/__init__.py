"""Cases that trigger the messages of recoup, for docs/messages.md: see messages.py."""
