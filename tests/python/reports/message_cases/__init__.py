"""Cases that trigger the messages of recoup: see messages.py."""
