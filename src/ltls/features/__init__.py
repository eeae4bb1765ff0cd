"""Rows of features as the engine takes them, and the text vectorizer."""
