"""Metrics, evaluation and reports."""
