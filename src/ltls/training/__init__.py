"""Training: recipes, the pipeline, the trainer, checkpoints, and further training."""
