"""Readers and writers of data files; `ltls.io.formats` is the registry of their formats."""

from .delimited import Csv, Tsv
from .formats import register
from .lines import FastText, JsonLines, PlainText
from .npy import Npy
from .parquet import Parquet
from .svmlight import Svmlight, Xmc

# A later one is tried first when a format is detected: those that are sure of it come last.
for _format in (PlainText, Csv, Tsv, Svmlight, Xmc, FastText, JsonLines, Parquet, Npy):
    register(_format())
