"""Readers and writers of data files; `ltls.io.formats` is the registry of their formats."""

# Every format registers itself. A later one is tried first when a format is detected: those that
# are recognized for sure come last.
from . import plain_text as plain_text  # isort: skip
from . import delimited as delimited  # isort: skip
from . import svmlight as svmlight  # isort: skip
from . import fasttext as fasttext  # isort: skip
from . import json_lines as json_lines  # isort: skip
from . import parquet as parquet  # isort: skip
