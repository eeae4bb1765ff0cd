"""Readers and writers of data files; `ltls.io.formats` is the registry of their formats."""

from .delimited import Csv, Tsv
from .formats import register
from .lines import FastText, JsonLines, PlainText
from .npy import Npy
from .parquet import Parquet
from .svmlight import Svmlight, Xmc

# Detection tries the last format first: formats that are easy to recognize come last.
for _format in (PlainText, Csv, Tsv, Svmlight, Xmc, FastText, JsonLines, Parquet, Npy):
    register(_format())
