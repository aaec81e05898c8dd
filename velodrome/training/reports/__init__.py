"""What `velo profile` says of a training run and of PyTorch's traces. It reads files alone, without torch."""
