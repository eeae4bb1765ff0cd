"""EncoderClassifier: an encoder, fine-tuned or not, and the estimators of texts and vectors."""

from __future__ import annotations

import os
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from torch import nn

from ..core.arrays import AnyArray, Ints, entries_of
from ..estimators.classifier import LTLSClassifier
from ..estimators.front_ends import TextClassifier
from ..model.examples import Examples
from ..model.labels import Labels, as_targets
from ..parts.calibration import best_threshold
from ..training.data import RowsToHoldOut
from ..training.progress import stage
from .adaptive_head import AdaptiveHead
from .devices import as_device, enough_memory
from .encoder_files import Saved, checkpoint_folder, load_saved
from .encoder_predictions import EncoderPredictions, as_rows
from .encoding import Encoder
from .fine_tuning import Network, Schedule, fine_tune
from .head import TrellisSoftmax
from .head_files import Head
from .hybrid import best_weights, weighted
from .probing import probe
from .processes import Processes, n_processes, processes

_MAX_HELD_OUT = 3000  # rows
_SHARE = 0.05  # of all rows; if at least as many are held out, stages are trained again on all rows
_LEARNED = ("vectors_", "text_", "weights_", "_threshold")  # after the encoder


class EncoderClassifier(EncoderPredictions, ClassifierMixin, BaseEstimator):
    """Classifier of texts among very many classes, with an encoder such as a transformer.

    The model has up to three stages, each optional: a trellis head (`TrellisSoftmax`) that the
    encoder is fine-tuned with, an `LTLSClassifier` on the encoder's vectors (see
    `ltls.torch.probe`), and a `TextClassifier` on n-grams. Each proposes labels. The score of a
    label is the weighted mean of its log-probabilities in the stages; the weights are chosen on
    held-out rows.

    Parameters
    ----------
    encoder : str, path or nn.Module
        The name or folder of a model of Hugging Face's transformers or of sentence-transformers; or
        a module, which is copied. A module takes what `tokenizer` returns, or batches of rows of X
        without a tokenizer, and returns a vector, or a sequence of vectors, per row. A
        `SentenceTransformer` is such a module, with a tokenizer of its own. Of a model with encoder
        and decoder, the encoder is used.
    tokenizer : callable, optional
        A tokenizer of transformers; by default that of `encoder`.
    pooling : {"mean", "cls", "max", "lasttoken"}, optional
        How a sequence of vectors becomes one: by its mean or maximum, or its first or last one. By
        default, as a model of sentence-transformers does it, and otherwise by the mean.
    max_length : int, optional
        Maximum number of tokens of a text; longer texts are truncated, with a warning in `fit`. By
        default, as many as the encoder takes.
    fine_tune : bool, default=True
        Whether to train the encoder together with a trellis head. Requires Accelerate. Weights of
        half precision are then converted to float32; see `mixed_precision`.
    vectors : bool or LTLSClassifier, default=True
        Whether to train a classifier on vectors. Pass an `LTLSClassifier` to set its parameters.
    text : bool or TextClassifier, default=True
        Whether to train a classifier on n-grams. Pass a `TextClassifier` to set its parameters.
    head : dict, optional
        Parameters of `TrellisSoftmax`, such as `width` (64 if it is not given), `propensities` and
        `loss`. With the key "cutoffs", whose value may be None, the head is an
        `AdaptiveTrellisSoftmax` with these parameters: the most frequent labels then have vectors
        of their own.
    epochs : int, default=3
        Passes over the rows in fine-tuning.
    batch_size : int, default=32
        Number of rows per mini-batch and process, in fine-tuning and when rows are encoded.
    learning_rate, head_learning_rate : float, default=5e-5 and 3e-3
        Step sizes of AdamW, for the encoder and for the head.
    weight_decay : float, default=0.01
        Weight decay of AdamW.
    warmup : float, default=0.1
        Fraction of all steps in which the learning rates increase linearly; then they decrease
        to 0.
    mixed_precision : {"no", "bf16", "fp16"}, default="no"
        Floating-point type of fine-tuning and of encoding rows, or "no" for full precision.
    gradient_accumulation_steps : int, default=1
        Number of mini-batches per optimizer step. More of them with a smaller `batch_size` take
        less memory.
    gradient_checkpointing : bool, default=False
        Whether to recompute activations in the backward pass, which saves memory. Requires a model
        of transformers.
    validation_fraction : float, default=0.1
        Fraction of rows to hold out, at most 3,000 rows, to choose the best epoch and the weights
        of the stages.
    n_iter_no_change : int, default=2
        Fine-tuning ends after this many epochs without a higher P@1 on the held-out rows.
    device : torch.device or str, optional
        Where the encoder runs. By default a GPU if there is one, else the CPU; if several processes
        train, each has a GPU of its own.
    n_jobs : int, optional
        Number of threads for the other stages, as in `LTLSClassifier`.
    random_state : int or RandomState, optional
        Seed. If several processes train, all must get the same integer.
    verbose : int, default=0
        Above 0, show progress.

    Attributes
    ----------
    classes_ : array
        The labels.
    weights_ : dict of str to float
        The weight of each stage: "head", "vectors" and "text".
    encoder_ : nn.Module
        The encoder as trained; `encoder_.model` is a copy of `encoder`.
    head_ : nn.Module or None
        The `TrellisSoftmax`, whose class i is the label ``classes_[i]``; None if
        ``fine_tune=False``. With "cutoffs" in `head`, ``head_.softmax`` is the
        `AdaptiveTrellisSoftmax`, whose class i is the label ``classes_[head_.label_of[i]]``.
    vectors_ : LTLSClassifier or None
        The classifier of vectors. Its class i, and that of `text_`, is the label ``classes_[i]``.
    text_ : TextClassifier or None
        The classifier of texts.
    threshold_ : float
        Several labels per row only: `predict` returns the labels that score at least this much.

    Notes
    -----
    On several GPUs, run the script with ``accelerate launch``, or call `fit` in the workers of Ray
    Train: fine-tuning is then data-parallel, every process encodes its share of the rows, and the
    first one trains the other stages. All end with the same model.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from torch import nn
    >>> from ltls.torch import EncoderClassifier
    >>> _ = torch.manual_seed(0)
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
        pooling: str | None = None,
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
        """Fine-tune the encoder, encode all rows, train the other stages, and choose their weights.

        Parameters
        ----------
        X : list of str, or array or tensor of rows
            Rows that are not texts need an encoder without a tokenizer, and ``text=False``.
        y : labels
            As in `LTLSClassifier.fit`.
        checkpoint : path-like, optional
            A folder for the state of fine-tuning after every epoch, and for the vectors of all
            rows, which are memory-mapped. By default, vectors are in a temporary folder.
        resume : bool, default=False
            Continue from the state in `checkpoint`. Data and parameters must be the same, except
            for `gradient_checkpointing`, `vectors`, `text`, `device`, `n_jobs` and `verbose`.
            `mixed_precision` may change between "no" and "bf16", and `batch_size` may change if its
            product with `gradient_accumulation_steps` does not.

        Returns
        -------
        self
        """
        how, device = self._schedule(), as_device(self.device)
        encoder = Encoder.load(
            deepcopy(self.encoder), self.tokenizer, self.pooling, self.max_length
        )
        X = as_rows(X, encoder.tokenizer, self.text)
        targets = as_targets(y)
        labels = Labels.sorted(targets)
        targets.check_rows(len(X))
        if len(labels) < 2:
            raise ValueError(f"y must hold at least 2 classes, got {len(labels)}")
        examples = Examples.of(labels, X, targets)
        parameters = self.get_params(deep=False)
        with (
            processes(device) as group,
            checkpoint_folder(
                checkpoint, resume, examples, encoder, parameters, how.seed, group
            ) as (folder, seed),
            enough_memory("training", device, self._less_memory(checkpoint is not None)),
        ):
            if group.is_first:
                encoder.warn_of_long(X)
            how = replace(how, seed=seed)
            counts = np.bincount(examples.labels, minlength=len(labels))
            every, n_trained = self._split(examples, counts, seed)
            trained, held_out = _cut(every, n_trained)
            head = None
            if self.fine_tune:
                encoder.float()  # small steps are lost in weights of half precision
                head = self._new_head(encoder, X[0], counts, device, seed)
                network, saved = Network(encoder, head), None if checkpoint is None else folder
                with stage("head"):
                    fine_tune(network, trained, held_out, how, device, saved, resume)
            fitted = copy(self)  # an error leaves this one as it was
            fitted.labels_, fitted._targets = labels, targets
            fitted.encoder_, fitted.head_ = encoder, head
            vectors = fitted._cached_vectors(folder, every.rows, device, resume, group)
            learn = partial(fitted._learn_stages, every, n_trained, vectors, device)
            fitted.__dict__ |= group.first(learn)
        self.__dict__ = fitted.__dict__
        return self

    def _schedule(self) -> Schedule:
        """Return the settings of fine-tuning; all parameters are checked."""
        stages = {"fine_tune": (), "vectors": (LTLSClassifier,), "text": (TextClassifier,)}
        for name, kinds in stages.items():
            given = getattr(self, name)
            if not isinstance(given, (bool, np.bool_, *kinds)):
                wanted = " or ".join(["a boolean", *(f"a {kind.__name__}" for kind in kinds)])
                raise TypeError(f"{name} must be {wanted}, got {given!r}")
        if not (self.fine_tune or self.vectors or self.text):
            raise ValueError("fine_tune, vectors and text must not all be False")
        if not isinstance(self.head, (dict, type(None))):
            raise TypeError(
                "head must be a dict of parameters of TrellisSoftmax or AdaptiveTrellisSoftmax, "
                f"got {self.head!r}"
            )
        if (self.head or {}).get("n_trellises", 1) != 1:
            raise ValueError(f"head must have n_trellises=1, got {self.head!r}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and less than 1, got "
                f"{self.validation_fraction}"
            )
        if n_processes() > 1:
            if not isinstance(self.random_state, Integral):
                raise ValueError(
                    "random_state must be an integer if several processes train, so that all hold "
                    f"out the same rows, got {self.random_state!r}"
                )
            device = as_device(self.device)
            if device.type == "cuda" and device != (own := as_device("cuda")):
                raise ValueError(
                    f"device must be None or {str(own)!r} in this one of several processes, got "
                    f"{str(device)!r}"
                )
        names = [each for each in Schedule.__dataclass_fields__ if each != "seed"]
        seed = int(check_random_state(self.random_state).randint(2**31))
        return Schedule(**{name: getattr(self, name) for name in names}, seed=seed)

    def _less_memory(self, checkpoint: bool) -> str:
        """Return what to do if training takes too much memory."""
        changes = f"use a smaller batch_size than {self.batch_size}"
        if self.fine_tune:
            changes += (
                " with as many times more gradient_accumulation_steps, gradient_checkpointing=True "
                "or mixed_precision='bf16'"
            )
        if checkpoint:
            return (
                f"{changes}, with which resume=True continues from the checkpoint; or start again "
                "with a smaller max_length"
            )
        return f"{changes}, or a smaller max_length; with checkpoint, resume=True continues later"

    def _split(self, examples: Examples, counts: Ints, seed: int) -> tuple[Examples, int]:
        """Return all rows, held-out ones last, and the number of the others.

        Every label has at least one row that is not held out.
        """
        n_rows = len(examples)
        n = min(int(np.ceil(self.validation_fraction * n_rows)), _MAX_HELD_OUT)
        rows = np.sort(np.random.default_rng(seed).permutation(n_rows)[:n])
        held_out = RowsToHoldOut(counts).select(examples, rows)
        kept = np.delete(np.arange(n_rows), held_out)
        return _take(examples, np.concatenate([kept, held_out])), len(kept)

    def _new_head(
        self, encoder: Encoder, row: Any, counts: Ints, device: torch.device, seed: int
    ) -> Head:
        options: dict[str, Any] = {"width": 64, "counts": counts, **(self.head or {})}
        size = encoder.size(row, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if "cutoffs" in options:
                return AdaptiveHead.by_frequency(size, **options).to(device)
            return TrellisSoftmax(size, len(counts), **options).to(device)

    def _cached_vectors(
        self, folder: Path, rows: Any, device: torch.device, resume: bool, group: Processes
    ) -> AnyArray:
        """Return the vectors of all rows, memory-mapped; with `resume`, from the file if it exists.

        Every process encodes its share of the rows.
        """
        if not self.vectors and self.head_ is None:
            return np.zeros((len(rows), 0), np.float32)
        path, first = folder / "vectors.npy", self.encoder_.vector(rows[0], device)
        computed = resume and group.first(path.exists)
        if not computed:
            unfinished = group.first(lambda: folder / f"unfinished-{os.getpid()}.npy")
            shape, own = (len(rows), len(first)), group.share(len(rows))
            new = partial(np.lib.format.open_memmap, unfinished, "w+", np.float32, shape)
            group.first(lambda: new().flush())
            out = np.load(unfinished, mmap_mode="r+")
            verbose = bool(self.verbose) and group.is_first
            how = self.batch_size, device, out[own], self.mixed_precision, verbose
            self.encoder_.vectors(rows[own], *how)
            out.flush()
            del out
            group.wait()
            group.first(lambda: unfinished.replace(path))
        found: AnyArray = np.load(path, mmap_mode="r")
        # Another device rounds differently.
        if computed and not np.allclose(found[0], first, atol=0.1 * np.abs(first).max()):
            raise ValueError(
                f"resume=True: {path} has vectors of another encoder; use the same encoder, or "
                "resume=False"
            )
        return found

    def _learn_stages(
        self, examples: Examples, n_trained: int, vectors: AnyArray, device: torch.device
    ) -> dict[str, Any]:
        """Train classifiers of vectors and of texts, and choose the weights of all stages.

        Their labels are ids. After the weights are chosen, the classifiers are trained again on all
        rows if enough rows were held out; otherwise, that of texts learns the held-out rows by
        `partial_fit`. Return the new attributes.
        """
        trained, held_out = _cut(examples, n_trained)
        self.vectors_ = self._fit_vectors(trained, vectors[:n_trained], device)
        self.text_ = self._fit_text(trained)
        self._choose(held_out, vectors[n_trained:])
        again = len(held_out) >= max(_SHARE * len(examples), 1)
        if again and self._keeps_scale(self.vectors_):
            self.vectors_ = self._fit_vectors(examples, vectors, device)
        if again and self._keeps_scale(self.text_):
            self.text_ = self._fit_text(examples)
        elif self.text_ is not None and len(held_out):
            self.text_.partial_fit(held_out.rows, _ids_of(held_out))
        return {name: getattr(self, name) for name in _LEARNED}

    def _keeps_scale(self, part: LTLSClassifier | None) -> bool:
        """Return whether a part would have probabilities of the same scale if trained again.

        Those for several labels per row are not calibrated if there are few rows.
        """
        if part is None:
            return False
        return not self._targets.multilabel or part.model_.calibration.curve is not None

    def _usual(self) -> dict[str, Any]:
        """Return the parameters that stages share."""
        return {name: getattr(self, name) for name in ("random_state", "n_jobs", "verbose")}

    def _fit_vectors(
        self, examples: Examples, vectors: AnyArray, device: torch.device
    ) -> LTLSClassifier | None:
        if not self.vectors:
            return None
        given = isinstance(self.vectors, LTLSClassifier)
        options = clone(self.vectors).get_params(deep=False) if given else self._usual()
        with stage("vectors"):
            return probe(vectors, _ids_of(examples), device=device, **options)

    def _fit_text(self, examples: Examples) -> LTLSClassifier | None:
        if not self.text:
            return None
        given = isinstance(self.text, TextClassifier)
        found: LTLSClassifier = clone(self.text) if given else TextClassifier(**self._usual())
        with stage("text"):
            return found.fit(examples.rows, _ids_of(examples))

    def _choose(self, examples: Examples, vectors: AnyArray) -> None:
        """Choose the weights of the stages, and the threshold, on held-out rows."""
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

        The first call is `fit`. Later, the encoder, its head and the weights of the stages do not
        change: the head never proposes new labels.

        Parameters
        ----------
        X, y
            As in `fit`.

        Returns
        -------
        self
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        X, targets = as_rows(X, self.encoder_.tokenizer, self.text), as_targets(y)
        if self.vectors_ is None and self.text_ is None:
            raise ValueError(
                "partial_fit needs vectors or text, since a head cannot learn further: fit again "
                "with vectors=True or text=True"
            )
        targets.check_rows(len(X))
        targets.check_kind(self._targets.multilabel)
        labels = Labels(self.labels_.values)
        labels.add(targets)
        own = _ids_of(Examples.of(labels, X, targets))
        # An error or Ctrl-C leaves all stages as they were: their labels are the same ids.
        vectors, text = copy(self.vectors_), copy(self.text_)
        if vectors is not None:
            vectors.partial_fit(self.encode(X), own)
        if text is not None:
            text.partial_fit(list(X), own)
        self.__dict__ |= {"vectors_": vectors, "text_": text, "labels_": labels}
        return self

    # Files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted model to a folder, without pickle.

        The content is replaced as a whole. ``classifier.ltls`` holds the labels and the head. It
        names a subfolder with the encoder, as transformers saves it or its weights alone, and with
        a model file for each of the other stages.
        """
        self._check_fitted()
        self._saved().save(Path(folder))

    def _saved(self) -> Saved:
        both = {"vectors": self.vectors_, "text": self.text_}
        return Saved(
            self.encoder_,
            self.head_,
            {name: part for name, part in both.items() if part is not None},
            self.labels_,
            self.weights_,
            self._threshold,
            self._targets,
            self.batch_size,
            self.mixed_precision,
        )

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
            The folder that `save` has written.
        encoder : nn.Module, optional
            A module of the same class as the one that was saved; its weights are replaced. Not
            needed for models of transformers.
        tokenizer : callable, optional
            The tokenizer of such a module, if it has one.
        device : torch.device or str, optional
            As in `EncoderClassifier`.

        Returns
        -------
        EncoderClassifier
            Fitted.

        Raises
        ------
        ModelFileError
            If a file is damaged or of another version.
        """
        found = load_saved(Path(folder), encoder, tokenizer, as_device(device))
        network = found.encoder
        model = cls(
            encoder=network.model,
            tokenizer=network.tokenizer,
            pooling=network.pooling,
            max_length=network.max_length,
            fine_tune=found.head is not None,
            vectors="vectors" in found.parts,
            text="text" in found.parts,
            batch_size=found.batch_size,
            mixed_precision=found.mixed_precision,
            device=device,
        )
        model.encoder_, model.head_, model.labels_ = network, found.head, found.labels
        model.text_, model.vectors_ = map(found.parts.get, ("text", "vectors"))
        model._targets, model._threshold = found.targets, found.threshold
        model.weights_ = found.weights
        return model


def _take(examples: Examples, rows: Ints) -> Examples:
    """Return some rows as a list, so that those of a memory-mapped array stay on disk."""
    indptr, at = entries_of(examples.indptr, rows)
    own: Any = [examples.rows[i] for i in rows]
    return replace(examples, rows=own, indptr=indptr, labels=examples.labels[at])


def _cut(examples: Examples, n: int) -> tuple[Examples, Examples]:
    """Return the first n rows, and the others."""
    return _take(examples, np.arange(n)), _take(examples, np.arange(n, len(examples)))


def _ids_of(examples: Examples) -> Any:
    """Return the label ids of all rows, in the form that estimators take."""
    if not examples.multilabel:
        return examples.labels
    return [own.tolist() for own in np.split(examples.labels, examples.indptr[1:-1])]
