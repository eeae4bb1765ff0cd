"""An oracle for the engine's parser: svmlight and xmc lines read in plain Python."""

import re
from fractions import Fraction

import numpy as np

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def nearest_float32(word):
    """The float32 nearest to a decimal number, halves to even, found with exact fractions."""
    exact = Fraction(word.decode())
    with np.errstate(over="ignore"):
        guess = np.float32(float(word))
        around = [np.nextafter(guess, np.float32(end)) for end in (-np.inf, np.inf)]
    limit = Fraction(2) ** 128  # where infinity stands, one step after the largest float

    def value(number):
        return Fraction(float(number)) if np.isfinite(number) else limit * int(np.sign(number))

    def distance(number):
        return abs(value(number) - exact), int(number.view(np.int32)) & 1

    return min((guess, *around), key=distance)


def parse_line(line, first, last, labels):
    """The labels and features of a line, None if it has no row, or what is wrong with it."""
    words = line.partition(b"#")[0].split()
    if not words:
        return None
    row_labels, pairs = set(), {}
    if b":" not in words[0]:
        for label in words.pop(0).split(b","):
            number = Fraction(label.decode()) if NUMBER.fullmatch(label) else Fraction(1, 2)
            if number.denominator != 1 or number.numerator not in labels:
                return "label"
            row_labels.add(number.numerator)
    if words and words[0].startswith(b"qid:"):
        words.pop(0)
    for word in words:
        index, colon, value = word.partition(b":")
        if not colon:
            return "pair"
        if not re.fullmatch(rb"[+-]?\d{1,18}", index) or not first <= int(index) <= last:
            return "feature"
        if not NUMBER.fullmatch(value) or not np.isfinite(nearest_float32(value)):
            return "value"
        pairs.setdefault(int(index), []).append(nearest_float32(value))
    if any(len(values) > 1 for values in pairs.values()):
        return "twice"
    return sorted(row_labels), sorted((index, values[0]) for index, values in pairs.items())


def parse(text, first, last, labels, blank_rows):
    """All rows of a text, or the number and kind of the first fault."""
    rows = []
    lines = text.split(b"\n")
    for number, line in enumerate(lines if lines[-1] else lines[:-1]):
        if number < blank_rows and not line.split():
            rows.append(([], []))
            continue
        row = parse_line(line, first, last, labels)
        if isinstance(row, str):
            return number, row
        if row is not None:
            rows.append(row)
    return rows
