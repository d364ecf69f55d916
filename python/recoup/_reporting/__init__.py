"""What a run tells: reports, holders of memory, failures."""
