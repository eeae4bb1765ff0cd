"""Linear edge scorers: weights to predict with, and weights while they are trained."""
