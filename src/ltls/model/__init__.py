"""Fitted models: labels, combined parts, top-k predictions, probabilities, explanations."""
