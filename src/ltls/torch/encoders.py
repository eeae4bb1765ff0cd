"""EncoderClassifier: an encoder, fine-tuned or not, and the estimators of texts and vectors."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from torch import nn

from ..core.arrays import AnyArray, Floats, Ints, as_integer, entries_of
from ..estimators.classifier import LTLSClassifier
from ..estimators.front_ends import TextClassifier
from ..estimators.load import load
from ..model.examples import Examples
from ..model.labels import Labels, Targets, as_targets
from ..parts.calibration import best_threshold
from ..training.data import RowsToHoldOut
from ..training.progress import EpochStats, progress_bar
from .encoder_files import checkpoint_folder, load_network, save_network
from .fine_tuning import Encoder, Network, Schedule, fine_tune
from .head import TrellisSoftmax
from .hybrid import (
    EncoderExplanation,
    EstimatorScores,
    HeadScores,
    PartScore,
    best_weights,
    weighted,
)
from .probing import as_device, probe

_MAX_HELD_OUT = 3000  # rows
_CANDIDATES = 50  # of every part
_MAX_CELLS = 1 << 28  # of a dense result
_FILE, _TEXT, _VECTORS = "classifier.json", "text.ltls", "vectors.ltls"


class EncoderClassifier(ClassifierMixin, BaseEstimator):
    """Classifier of texts among very many classes, with an encoder such as a transformer.

    Three parts, each optional, propose labels: a trellis head that the encoder is fine-tuned with
    (`TrellisSoftmax`, for several labels per row softmax over these), an `LTLSClassifier` on the
    encoder's vectors (see `ltls.torch.probe`), and a `TextClassifier` on n-grams. A label's
    score is the weighted sum of its log-probabilities; the weights are chosen on held-out rows.

    Parameters
    ----------
    encoder : str, path or nn.Module
        The name or folder of a model of transformers; or a module, which is copied. A module takes
        what `tokenizer` returns, or batches of rows of X if there is none, and returns vectors, or
        a sequence of vectors per row.
    tokenizer : callable, optional
        A tokenizer of transformers; by default that of `encoder`.
    pooling : {"mean", "cls"}, default="mean"
        How a sequence of vectors becomes one: by its mean, or its first one.
    max_length : int, optional
        Tokens of a text, the rest is truncated with a warning. By default what the encoder takes.
    fine_tune : bool, default=True
        Whether to train the encoder, with a head. Needs Accelerate.
    vectors : bool or LTLSClassifier, default=True
        Whether to train a classifier on vectors, or one with the parameters to use.
    text : bool or TextClassifier, default=True
        Whether to train a classifier on n-grams, or one with the parameters to use.
    head : dict, optional
        Parameters of `TrellisSoftmax`, such as `width` (by default 64), `propensities` and
        ``loss="logistic"``.
    epochs : int, default=3
        Passes over the data in fine-tuning.
    batch_size : int, default=32
        Rows of a step of each process, and of a batch in prediction.
    learning_rate, head_learning_rate : float, default=5e-5, 3e-3
        Of AdamW, for the encoder and for the head.
    weight_decay : float, default=0.01
    warmup : float, default=0.1
        The fraction of all steps in which the learning rates increase; then they decrease to 0.
    mixed_precision : {"no", "bf16", "fp16"}, default="no"
    gradient_accumulation_steps : int, default=1
        Steps whose gradients are summed up.
    gradient_checkpointing : bool, default=False
        Whether to compute activations again in the backward pass, to save memory.
    validation_fraction : float, default=0.1
        The fraction of rows, at most 3,000, that epochs and weights are chosen on.
    n_iter_no_change : int, default=2
        Fine-tuning ends after so many epochs without a better P@1 on these rows.
    device : torch.device or str, optional
        A GPU if there is one, else the CPU.
    n_jobs : int, optional
        Threads of the parts on a CPU.
    random_state : int or RandomState, optional
    verbose : int, default=0

    Attributes
    ----------
    classes_ : array
        The labels.
    weights_ : dict of str to float
        The weight of each part.
    encoder_ : nn.Module
        The encoder as trained.
    head_ : TrellisSoftmax or None
    vectors_ : LTLSClassifier or None
        Class i of this and of `text_` is the label ``classes_[i]``.
    text_ : TextClassifier or None
    threshold_ : float
        Several labels per row only: the score from which `predict` returns a label.

    Notes
    -----
    On several GPUs, run the script with ``accelerate launch``: fine-tuning is then data-parallel,
    and every process trains the other parts.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from ltls.torch import EncoderClassifier
    >>> X = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    >>> y = np.where(X[:, 0] > 0, "plus", "minus")
    >>> model = EncoderClassifier(nn.Linear(8, 8), fine_tune=False, text=False, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        encoder: Any,
        *,
        tokenizer: Any = None,
        pooling: str = "mean",
        max_length: int | None = None,
        fine_tune: bool = True,
        vectors: Any = True,
        text: Any = True,
        head: dict[str, Any] | None = None,
        epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 5e-5,
        head_learning_rate: float = 3e-3,
        weight_decay: float = 0.01,
        warmup: float = 0.1,
        mixed_precision: str = "no",
        gradient_accumulation_steps: int = 1,
        gradient_checkpointing: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 2,
        device: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_length = max_length
        self.fine_tune = fine_tune
        self.vectors = vectors
        self.text = text
        self.head = head
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.mixed_precision = mixed_precision
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.gradient_checkpointing = gradient_checkpointing
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # Training

    def fit(
        self, X: Any, y: Any, checkpoint: str | os.PathLike[str] | None = None, resume: bool = False
    ) -> EncoderClassifier:
        """Fine-tune the encoder, encode all rows, train the other parts, and choose their weights.

        Parameters
        ----------
        X : list of str, or array or tensor of rows
            Rows that are not texts need an encoder without a tokenizer, and ``text=False``.
        y : labels
            As of `LTLSClassifier.fit`.
        checkpoint : path-like, optional
            A folder for the state of fine-tuning after every epoch, and for the vectors of all
            rows. Without it, vectors are in a temporary folder. They are memory-mapped.
        resume : bool, default=False
            Continue from what is in the folder; data and parameters must be the same.

        Returns
        -------
        self
        """
        schedule, device = self._schedule(), as_device(self.device)
        encoder = Encoder.load(
            deepcopy(self.encoder), self.tokenizer, self.pooling, self.max_length
        )
        X = _as_rows(X, encoder.tokenizer, self.text)
        targets = as_targets(y)
        labels = Labels.sorted(targets)
        if len(X) != targets.n_rows:
            raise ValueError(f"y must have one entry per row of X: {len(X)} rows, {targets.n_rows}")
        if len(labels) < 2:
            raise ValueError(f"y must hold at least 2 classes, got {len(labels)}")
        encoder.warn_of_long(X)
        examples = Examples.of(labels, X, targets)
        counts = np.bincount(examples.labels, minlength=len(labels))
        trained, held_out = self._split(examples, counts, schedule.seed)
        self.labels_, self._targets = labels, targets
        parameters = self.get_params(deep=False)
        with checkpoint_folder(checkpoint, resume, examples, encoder, parameters) as folder:
            network = None
            if self.fine_tune:
                network = self._network(encoder, X[0], counts, device, schedule.seed)
                self._fine_tune(network, trained, held_out, schedule, device, folder, resume)
            self.encoder_, self.head_ = encoder, None if network is None else network.head
            parts: list[Any] = [trained.rows, held_out.rows]  # lists
            rows = [row for part in parts for row in part]
            vectors = self._cached_vectors(folder, rows, device, resume)
            self._fit_parts(trained, vectors[: len(trained)], device)
            self._choose(held_out, vectors[len(trained) :])
        return self

    def _schedule(self) -> Schedule:
        """Return the settings of fine-tuning, validated."""
        if not (self.fine_tune or self.vectors or self.text):
            raise ValueError("one of fine_tune, vectors and text must be on")
        for name in ("epochs", "batch_size", "gradient_accumulation_steps", "n_iter_no_change"):
            as_integer(name, getattr(self, name), at_least=1)
        if (self.head or {}).get("n_trellises", 1) != 1:
            raise ValueError("head must have n_trellises=1")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and less than 1, got "
                f"{self.validation_fraction}"
            )
        if self.mixed_precision not in ("no", "bf16", "fp16"):
            raise ValueError(
                f"mixed_precision must be 'no', 'bf16' or 'fp16', got {self.mixed_precision!r}"
            )
        names = [each for each in Schedule.__dataclass_fields__ if each != "seed"]
        seed = int(check_random_state(self.random_state).randint(2**31))
        return Schedule(**{name: getattr(self, name) for name in names}, seed=seed)

    def _split(self, examples: Examples, counts: Ints, seed: int) -> tuple[Examples, Examples]:
        """Return rows to train on and held-out rows; every label has at least one of the former."""
        n_rows = len(examples)
        n = min(int(np.ceil(self.validation_fraction * n_rows)), _MAX_HELD_OUT)
        rows = np.sort(np.random.default_rng(seed).permutation(n_rows)[:n])
        held_out = RowsToHoldOut(counts).select(examples, rows)
        return _take(examples, np.delete(np.arange(n_rows), held_out)), _take(examples, held_out)

    def _network(
        self, encoder: Encoder, row: Any, counts: Ints, device: torch.device, seed: int
    ) -> Network:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            options = {"width": 64, "counts": counts, **(self.head or {})}
            head = TrellisSoftmax(encoder.size(row, device), len(counts), **options)
        return Network(encoder, head.to(device))

    def _fine_tune(
        self,
        network: Network,
        trained: Examples,
        held_out: Examples,
        how: Schedule,
        device: torch.device,
        folder: Path,
        resume: bool,
    ) -> None:
        """Fine-tune; name the settings that save memory if there is too little of it."""
        stats: dict[int, EpochStats] = {}
        try:
            with progress_bar(bool(self.verbose), self.epochs, len(trained)) as show:

                def report(epoch: int, loss: float, n_rows: int) -> None:
                    stats.setdefault(epoch, EpochStats()).add(loss, 0.0, n_rows)
                    show(epoch, stats[epoch], n_rows)

                fine_tune(network, trained, held_out, how, device, folder, resume, report)
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"fine-tuning does not fit into the memory of device={str(device)!r}: use a "
                f"smaller batch_size than {self.batch_size} with gradient_accumulation_steps, a "
                "smaller max_length, gradient_checkpointing=True or mixed_precision='bf16'; "
                "resume=True continues from the last epoch in the checkpoint"
            ) from error

    def _cached_vectors(
        self, folder: Path, rows: list[Any], device: torch.device, resume: bool
    ) -> AnyArray:
        """Return the vectors of all rows, memory-mapped; with `resume`, those that are there."""
        if not self.vectors and self.head_ is None:
            return np.zeros((len(rows), 0), np.float32)
        path = folder / "vectors.npy"
        if not (resume and path.exists()):
            unfinished = folder / f"unfinished-{os.getpid()}.npy"
            shape = (len(rows), self.encoder_.size(rows[0], device))
            out = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            self._encode(rows, device, out)
            out.flush()
            del out
            unfinished.replace(path)
        found: AnyArray = np.load(path, mmap_mode="r")
        return found

    def _encode(self, rows: Any, device: torch.device, out: AnyArray) -> None:
        try:
            self.encoder_.vectors(rows, self.batch_size, device, out)
        except torch.OutOfMemoryError as error:
            raise MemoryError(
                f"encoding does not fit into the memory of device={str(device)!r}: use a smaller "
                f"batch_size than {self.batch_size}, or a smaller max_length"
            ) from error

    def _fit_parts(self, examples: Examples, vectors: AnyArray, device: torch.device) -> None:
        """Train classifiers of vectors and of texts; their labels are ids."""
        y = _ids_of(examples)
        options = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        options["verbose"] = self.verbose
        self.vectors_ = self.text_ = None
        if self.vectors:
            if isinstance(self.vectors, LTLSClassifier):
                options = clone(self.vectors).get_params(deep=False)
            self.vectors_ = probe(vectors, y, device=device, **options)
        if self.text:
            given = isinstance(self.text, TextClassifier)
            self.text_ = clone(self.text) if given else TextClassifier(**options)
            self.text_.fit(examples.rows, y)

    def _choose(self, examples: Examples, vectors: AnyArray) -> None:
        """Choose the weights of the parts, and the threshold, on held-out rows."""
        names = list(self._parts())
        self.weights_ = dict.fromkeys(names, 1 / len(names))
        self._threshold = float(np.log(0.5))
        if not len(examples):
            return
        ids, scores = self._candidates(examples.rows, vectors)
        hits, n_true = examples.contains(ids), np.diff(examples.indptr)
        self.weights_ = best_weights(scores, hits, n_true)
        total = weighted(scores, self.weights_, ids)
        self._threshold = best_threshold(total, hits, int(n_true.sum()))

    def partial_fit(self, X: Any, y: Any) -> EncoderClassifier:
        """Train the classifiers of vectors and texts further, also on new labels.

        The encoder, its head and the weights stay as they are: the head never proposes new labels.

        Parameters
        ----------
        X, y
            As of `fit`.

        Returns
        -------
        self
        """
        self._check_fitted()
        X, targets = _as_rows(X, self.encoder_.tokenizer, self.text), as_targets(y)
        if self.vectors_ is None and self.text_ is None:
            raise ValueError("partial_fit needs vectors or text: a head cannot learn further")
        if targets.multilabel != self._targets.multilabel:
            raise ValueError("y must have several labels per row if and only if fit had")
        labels = Labels(self.labels_.values)
        labels.add(targets)
        own = _ids_of(Examples.of(labels, X, targets))
        if self.vectors_ is not None:
            self.vectors_.partial_fit(self.encode(X), own)
        if self.text_ is not None:
            self.text_.partial_fit(list(X), own)
        self.labels_ = labels
        return self

    # Prediction

    @property
    def classes_(self) -> AnyArray:
        """The labels."""
        self._check_fitted()
        return self.labels_.array

    @property
    def threshold_(self) -> float:
        """The score from which `predict` returns one of several labels; may be set."""
        self._check_fitted()
        return self._threshold

    @threshold_.setter
    def threshold_(self, threshold: float) -> None:
        self._threshold = float(threshold)

    def __sklearn_is_fitted__(self) -> bool:
        return "weights_" in self.__dict__

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this EncoderClassifier is not fitted yet: call fit first")

    def encode(self, X: Any) -> Floats:
        """Return the vectors of rows, shape (n_rows, n_features)."""
        self._check_fitted()
        X, device = _as_rows(X, self.encoder_.tokenizer, self.text, False), as_device(self.device)
        out = np.empty((len(X), self.encoder_.size(X[0], device) if len(X) else 0), np.float32)
        self._encode(X, device, out)
        return out

    def _parts(self) -> dict[str, Any]:
        """Return the parts by name."""
        found = {"head": self.head_, "vectors": self.vectors_, "text": self.text_}
        return {name: part for name, part in found.items() if part is not None}

    def _candidates(self, X: Any, vectors: AnyArray) -> tuple[Ints, dict[str, Floats]]:
        """Return the candidates of all parts, padded with −1, and each part's log-probabilities."""
        parts = self._parts()
        n_labels = len(self.labels_)
        scorers: dict[str, Any] = {
            name: HeadScores(part, vectors, self._targets.multilabel)
            if name == "head"
            else EstimatorScores(part, X if name == "text" else vectors)
            for name, part in parts.items()
        }
        k = min(_CANDIDATES, n_labels)
        ids = np.sort(np.concatenate([each.best(k) for each in scorers.values()], axis=1), axis=1)
        ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = -1
        ids = -np.sort(-ids, axis=1)
        ids = np.ascontiguousarray(ids[:, : max(int((ids >= 0).sum(axis=1).max(initial=1)), 1)])
        return ids, {name: each.log_proba(ids) for name, each in scorers.items()}

    def _topk(self, X: Any, k: int | None = None) -> tuple[Ints, Floats, Ints, dict[str, Floats]]:
        """Return the best ids and scores, and all candidates with what the parts say of them."""
        self._check_fitted()
        X = _as_rows(X, self.encoder_.tokenizer, self.text, False)
        needs = self.vectors_ is not None or self.head_ is not None
        vectors = self.encode(X) if needs else np.zeros((len(X), 0), np.float32)
        ids, scores = self._candidates(X, vectors)
        total = weighted(scores, self.weights_, ids)
        order = np.argsort(-total, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(ids, order, 1), np.take_along_axis(total, order, 1)
        return *best, ids, scores

    def predict_topk(self, X: Any, k: int = 5, proba: bool = False) -> tuple[AnyArray, Floats]:
        """Return the k best labels of every row and their scores, best first.

        Parameters
        ----------
        X
            As of `fit`.
        k : int, default=5
            At most the number of candidates: 50 of each part.
        proba : bool, default=False
            Return probabilities instead of scores, see `predict_proba`.

        Returns
        -------
        labels, scores : arrays of shape (n_rows, k)
            None with score −inf, or probability 0, where a row has fewer candidates.
        """
        ids, scores, every, of_parts = self._topk(X, as_integer("k", k, at_least=1))
        if proba:
            scores = self._proba(scores, weighted(of_parts, self.weights_, every))
        labels = self.labels_.array[np.maximum(ids, 0)]
        if (ids < 0).any():
            labels = labels.astype(object)
            labels[ids < 0] = None
        return labels, scores

    def _proba(self, scores: Floats, every: Floats) -> Floats:
        """Return probabilities; those of one label per row sum to 1 over all candidates."""
        if self._targets.multilabel:
            return np.exp(np.minimum(scores, 0))
        highest = every.max(axis=1, keepdims=True)
        return np.exp(scores - highest) / np.exp(every - highest).sum(axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of all labels, shape (n_rows, n_classes).

        They are the weighted geometric means of the parts' probabilities; for one label per row,
        normalized over the candidates. All other labels have probability 0.
        """
        ids, scores, every, of_parts = self._topk(X)
        if len(ids) * len(self.labels_) > _MAX_CELLS:
            raise ValueError(
                f"predict_proba would return {len(ids)} rows × {len(self.labels_)} classes; use "
                "predict_topk, or fewer rows"
            )
        found = np.zeros((len(ids), len(self.labels_)), np.float32)
        values = self._proba(scores, weighted(of_parts, self.weights_, every))
        row, column = np.nonzero(ids >= 0)
        found[row, ids[row, column]] = values[row, column]
        return found

    def predict(self, X: Any) -> Any:
        """Return the best label of every row, or those with a score of at least `threshold_`."""
        ids, scores, *_ = self._topk(X)
        if not self._targets.multilabel:
            return self.labels_.array[ids[:, 0]]
        chosen = [row[score >= self._threshold] for row, score in zip(ids, scores, strict=True)]
        values = self.labels_.values
        lists = [[values[i] for i in row if i >= 0] for row in chosen]
        if self._targets.format == "lists":
            return lists
        indptr = np.cumsum([0, *map(len, lists)])
        columns = np.array([label for row in lists for label in row], np.int64)
        shape = (len(lists), self._targets.n_columns)
        matrix = csr_array((np.ones(len(columns), np.int64), columns, indptr), shape=shape)
        return matrix if self._targets.format == "sparse" else matrix.toarray()

    def explain(self, X: Any, k: int = 5) -> list[list[EncoderExplanation]]:
        """Explain the k best labels of every row by what each part says of them.

        Parameters
        ----------
        X
            As of `fit`.
        k : int, default=5

        Returns
        -------
        list of list of EncoderExplanation
            The scores of the parts times their weights add up to the score of the label.
        """
        best, totals, every, of_parts = self._topk(X, as_integer("k", k, at_least=1))
        found = []
        for row in range(len(best)):
            known = best[row][best[row] >= 0]
            words: list[Any] = [None] * len(known)
            if self.text_ is not None:
                [words] = self.text_.explain([X[row]], labels=known.tolist())
            own = []
            for label, total, text in zip(known, totals[row], words, strict=False):
                at = int(np.flatnonzero(every[row] == label)[0])
                parts = [
                    PartScore(name, self.weights_[name], float(scores[row, at]))
                    for name, scores in of_parts.items()
                ]
                label_ = self.labels_.values[label]
                own.append(EncoderExplanation(label_, float(total), parts, text))
            found.append(own)
        return found

    # Files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted model to a folder, without pickle.

        The folder has ``classifier.json``, the encoder (as transformers saves it, or its weights),
        the head and labels as safetensors, and a model file for each other part.
        """
        self._check_fitted()
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        described = save_network(path, self.encoder_, self.head_, self.labels_)
        for name, part in ((_TEXT, self.text_), (_VECTORS, self.vectors_)):
            (path / name).unlink(missing_ok=True)
            if part is not None:
                part.save(path / name)
        targets = self._targets
        described |= {
            "weights": self.weights_,
            "threshold": self._threshold,
            "targets": [targets.multilabel, targets.format, targets.n_columns],
            "batch_size": self.batch_size,
        }
        (path / _FILE).write_text(json.dumps(described, indent=2))

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        encoder: nn.Module | None = None,
        tokenizer: Any = None,
        device: Any = None,
    ) -> EncoderClassifier:
        """Load a model that `save` has written.

        Parameters
        ----------
        folder : path-like
        encoder : nn.Module, optional
            A module like the one that was saved, whose weights are set. Models of transformers are
            loaded without it.
        tokenizer : callable, optional
            For a module of your own, if it has one.
        device : torch.device or str, optional
        """
        path, where = Path(folder), as_device(device)
        described = json.loads((path / _FILE).read_text())
        network, head, labels = load_network(path, described, encoder, tokenizer, where)
        text, vectors = (
            load(path / name) if (path / name).exists() else None for name in (_TEXT, _VECTORS)
        )
        model = cls(
            network.model,
            tokenizer=network.tokenizer,
            pooling=network.pooling,
            max_length=network.max_length,
            fine_tune=head is not None,
            vectors=vectors is not None,
            text=text is not None,
            batch_size=described["batch_size"],
            device=device,
        )
        model.encoder_, model.head_, model.labels_ = network, head, labels
        model.text_, model.vectors_ = text, vectors
        model._targets = Targets(np.zeros(1, np.int64), [], *described["targets"])
        model._threshold, model.weights_ = described["threshold"], described["weights"]
        return model


def _take(examples: Examples, rows: Ints) -> Examples:
    """Return some rows as a list, so that those of a memory-mapped array stay on disk."""
    indptr, at = entries_of(examples.indptr, rows)
    own: Any = [examples.rows[i] for i in rows]
    return replace(examples, rows=own, indptr=indptr, labels=examples.labels[at])


def _ids_of(examples: Examples) -> Any:
    """Return the label ids of all rows, in the form that estimators take."""
    if not examples.multilabel:
        return examples.labels
    return [own.tolist() for own in np.split(examples.labels, examples.indptr[1:-1])]


def _as_rows(X: Any, tokenizer: Any, text: Any, training: bool = True) -> Any:
    """Return texts as a list, or rows as they are; texts that cannot be trained on are errors."""
    if tokenizer is None and not text:
        if isinstance(X, str) or not hasattr(X, "__len__"):
            raise TypeError(f"X must be an array or tensor of rows, got {type(X).__name__}")
        return X
    if isinstance(X, str):
        raise TypeError("X must be a list of texts, got one text: pass [text]")
    texts = list(X)
    for number, each in enumerate(texts):
        if not isinstance(each, str):
            raise TypeError(f"X must be texts, got {type(each).__name__} as X[{number}]")
        if training and not each.strip():
            raise ValueError(f"X must be texts to learn from, got an empty one as X[{number}]")
    if training and not texts:
        raise ValueError("X must have at least one text, got none")
    return texts
