"""Training: configuration, trainer, in-memory and streamed fits, checkpoints."""
