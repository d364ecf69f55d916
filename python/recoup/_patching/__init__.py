"""What is put around entry points of PyTorch and Python that no op shows."""
