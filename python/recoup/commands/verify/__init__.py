"""`recoup verify`: compares two runs of a training, bit for bit, after every step."""
