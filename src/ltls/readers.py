"""Readers and writers of svmlight and XMC files."""

from .io.readers import Dataset, Stream, read, write

__all__ = ["Dataset", "Stream", "read", "write"]
