"""EncoderClassifier: an encoder, fine-tuned or not, and the estimators of texts and vectors."""

from __future__ import annotations

import os
from copy import copy, deepcopy
from dataclasses import field, replace
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
from ..core.settings import (
    FLAG,
    NOTHING,
    Allowed,
    Instance,
    Integer,
    Number,
    setting,
    settings,
)
from ..estimators.classifier import LTLSClassifier
from ..estimators.front_ends import TextClassifier
from ..estimators.parameters import SEED
from ..model.examples import Examples
from ..model.labels import Labels, as_targets
from ..model.model import Fitted, Provenance
from ..parts.calibration import Calibrator
from ..training.data import RowsToHoldOut
from ..training.progress import stage
from .adaptive_head import AdaptiveHead
from .devices import as_device, enough_memory
from .encoder_files import checkpoint_folder, load_saved, save
from .encoder_predictions import EncoderPredictions, as_rows
from .encoding import Encoder
from .fine_tuning import FineTuning, Network, fine_tune
from .head import TrellisSoftmax
from .head_files import Head
from .hybrid import Stages
from .probing import probe
from .processes import Processes, n_processes, processes

_ENCODER = Instance("a name, a folder or an nn.Module", str, Path, nn.Module)
_MAX_HELD_OUT = 3000  # rows
_SHARE = 0.05  # of all rows; if at least as many are held out, stages are trained again on all rows


@settings
class EncoderClassifier(EncoderPredictions, ClassifierMixin, BaseEstimator, FineTuning):
    """Classifier of texts among very many classes, with an encoder such as a transformer.

    The model has up to three stages, each optional: a trellis head (`TrellisSoftmax`) that the
    encoder is fine-tuned with, an `LTLSClassifier` on the encoder's vectors (see
    `ltls.torch.probe`), and a `TextClassifier` on n-grams. Each proposes labels. The score of a
    label is the weighted mean of its log-probabilities in the stages; the weights are chosen on
    held-out rows.

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

    encoder: Any = field(
        kw_only=False,
        metadata={
            "allowed": (_ENCODER,),
            "help": "The name or folder of a model of Hugging Face's transformers or of "
            "sentence-transformers; or a module, which is copied. A module takes what `tokenizer` "
            "returns, or batches of rows of X without a tokenizer, and returns a vector, or a "
            "sequence of vectors, per row. A `SentenceTransformer` is such a module, with a "
            "tokenizer of its own. Of a model with encoder and decoder, the encoder is used.",
        },
    )
    tokenizer: Any = setting(
        Allowed("a callable", callable),
        NOTHING,
        default=None,
        help="A tokenizer of transformers; by default that of `encoder`.",
    )
    fine_tune: bool = setting(
        FLAG,
        default=True,
        help="Train the encoder together with a trellis head. Requires Accelerate. Weights of half "
        "precision are then converted to float32; see `mixed_precision`.",
    )
    vectors: bool | LTLSClassifier = setting(
        FLAG,
        Instance("an LTLSClassifier", LTLSClassifier),
        default=True,
        help="Train a classifier on vectors. Pass an `LTLSClassifier` to set its parameters.",
    )
    text: bool | TextClassifier = setting(
        FLAG,
        Instance("a TextClassifier", TextClassifier),
        default=True,
        help="Train a classifier on n-grams. Pass a `TextClassifier` to set its parameters.",
    )
    head: dict[str, Any] | None = setting(
        Instance("a dict of parameters of TrellisSoftmax or AdaptiveTrellisSoftmax", dict),
        NOTHING,
        default=None,
        help="Parameters of `TrellisSoftmax`, such as `width` (64 if it is not given), "
        '`propensities` and `loss`. With the key "cutoffs", whose value may be None, the head is '
        "an `AdaptiveTrellisSoftmax` with these parameters: the most frequent labels then have "
        "vectors of their own.",
    )
    validation_fraction: float = setting(
        Number(0, below=1),
        default=0.1,
        help="Fraction of rows to hold out, at most 3,000 rows, to choose the best epoch and the "
        "weights of the stages.",
    )
    device: Any = setting(
        Instance("a torch.device or its name", torch.device, str, int),
        NOTHING,
        default=None,
        help="Where the encoder runs. By default a GPU if there is one, else the CPU; if several "
        "processes train, each has a GPU of its own.",
    )
    n_jobs: int | None = setting(
        NOTHING,
        Integer(1),
        Integer(-(1 << 16), -1),
        default=None,
        help="Number of threads for the other stages, as in `LTLSClassifier`.",
    )
    random_state: Any = setting(
        SEED, default=None, help="Seed. If several processes train, all must get the same integer."
    )

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
        seed, device = self._checked_seed(), as_device(self.device)
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
            checkpoint_folder(checkpoint, resume, examples, encoder, parameters, seed, group) as (
                folder,
                seed,
            ),
            enough_memory("training", device, self._less_memory(checkpoint is not None)),
        ):
            if group.is_first:
                encoder.warn_of_long(X)
            counts = np.bincount(examples.labels, minlength=len(labels))
            every, n_trained = self._split(examples, counts, seed)
            trained, held_out = _cut(every, n_trained)
            head = None
            if self.fine_tune:
                encoder.float()  # small steps are lost in weights of half precision
                head = self._new_head(encoder, X[0], counts, device, seed)
                network, saved = Network(encoder, head), None if checkpoint is None else folder
                with stage("head"):
                    fine_tune(network, trained, held_out, self, seed, device, saved, resume)
            vectors = np.zeros((len(X), 0), np.float32)
            if self.vectors or head is not None:
                vectors = self._cached_vectors(encoder, folder, every.rows, device, resume, group)
            learn = partial(self._learned, every, n_trained, vectors, head, device)
            of_vectors, of_text, weights, threshold = group.first(learn)
        stages = Stages.of(head, of_vectors, of_text, targets.multilabel, weights)
        calibration = Calibrator(targets.multilabel, threshold=threshold)
        per_row = int(np.quantile(np.diff(targets.indptr), 0.99, method="higher"))
        model = stages.model(labels, calibration, targets.format, max(per_row, 1))
        fitted = Fitted(model, Provenance(len(X), counts))
        self.__dict__ |= {"encoder_": encoder, "fitted_": fitted}
        return self

    def _checked_seed(self) -> int:
        """Return a seed; all parameters are checked."""
        self.check()
        if not (self.fine_tune or self.vectors or self.text):
            raise ValueError("fine_tune, vectors and text must not all be False")
        if (self.head or {}).get("n_trellises", 1) != 1:
            raise ValueError(f"head must have n_trellises=1, got {self.head!r}")
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
        return int(check_random_state(self.random_state).randint(2**31))

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
        self,
        encoder: Encoder,
        folder: Path,
        rows: Any,
        device: torch.device,
        resume: bool,
        group: Processes,
    ) -> AnyArray:
        """Return the vectors of all rows, memory-mapped; with `resume`, from the file if it exists.

        Every process encodes its share of the rows.
        """
        path, first = folder / "vectors.npy", encoder.vector(rows[0], device)
        computed = resume and group.first(path.exists)
        if not computed:
            unfinished = group.first(lambda: folder / f"unfinished-{os.getpid()}.npy")
            shape, own = (len(rows), len(first)), group.share(len(rows))
            new = partial(np.lib.format.open_memmap, unfinished, "w+", np.float32, shape)
            group.first(lambda: new().flush())
            out = np.load(unfinished, mmap_mode="r+")
            verbose = bool(self.verbose) and group.is_first
            options = self.batch_size, device, out[own], self.mixed_precision, verbose
            encoder.vectors(rows[own], *options)
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

    def _learned(
        self,
        examples: Examples,
        n_trained: int,
        vectors: AnyArray,
        head: Head | None,
        device: torch.device,
    ) -> tuple[Any, Any, dict[str, float], float | None]:
        """Return classifiers of vectors and of texts, the weights of all stages and the threshold.

        Their labels are ids. After the weights are chosen, the classifiers are trained again on all
        rows if enough rows were held out; otherwise, that of texts learns the held-out rows by
        `partial_fit`.
        """
        trained, held_out = _cut(examples, n_trained)
        of_vectors = self._fit_vectors(trained, vectors[:n_trained], device)
        of_text = self._fit_text(trained)
        stages = Stages.of(head, of_vectors, of_text, examples.multilabel)
        chosen = stages.chosen(held_out, vectors[n_trained:])
        again = len(held_out) >= max(_SHARE * len(examples), 1)
        if again and _keeps_scale(of_vectors):
            of_vectors = self._fit_vectors(examples, vectors, device)
        if again and _keeps_scale(of_text):
            of_text = self._fit_text(examples)
        elif of_text is not None and len(held_out):
            of_text.partial_fit(held_out.rows, _ids_of(held_out))
        return of_vectors, of_text, *chosen

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
        model, stages = self._model(), self._stages
        # An error or Ctrl-C leaves all stages as they were: their labels are the same ids.
        vectors, text = copy(self.vectors_), copy(self.text_)
        if vectors is None and text is None:
            raise ValueError(
                "partial_fit needs vectors or text, since a head cannot learn further: fit again "
                "with vectors=True or text=True"
            )
        targets.check_rows(len(X))
        targets.check_kind(model.multilabel)
        labels = model.labels.extended(model.labels.unseen(targets))
        own = _ids_of(Examples.of(labels, X, targets))
        if vectors is not None:
            vectors.partial_fit(self.encode(X), own)
        if text is not None:
            text.partial_fit(list(X), own)
        stages = Stages.of(self.head_, vectors, text, model.multilabel, stages.weights)
        model = model.with_parts([stages], labels=labels)
        self.fitted_ = replace(self.fitted_, model=model)
        return self

    # Files

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted model to a folder, without pickle.

        The content is replaced as a whole. ``classifier.ltls`` holds the labels and the head. It
        names a subfolder with the encoder, as transformers saves it or its weights alone, and with
        a model file for each of the other stages.
        """
        model = self._model()
        save(Path(folder), self.encoder_, model, self)

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
        network, fitted, options = load_saved(Path(folder), encoder, tokenizer, as_device(device))
        (stages,) = fitted.parts
        model = cls(
            encoder=network.model,
            tokenizer=network.tokenizer,
            fine_tune="head" in stages.by_name,
            vectors="vectors" in stages.by_name,
            text="text" in stages.by_name,
            device=device,
            **options.get_params(),
        )
        model.encoder_ = network
        model.fitted_ = Fitted(fitted, Provenance(0, np.zeros(fitted.n_labels, np.int64)))
        return model


def _keeps_scale(part: LTLSClassifier | None) -> bool:
    """Return whether a classifier would have probabilities of the same scale if trained again.

    Those for several labels per row are not calibrated if there are few rows.
    """
    if part is None:
        return False
    return not part.multilabel_ or part.model_.calibration.curve is not None


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
