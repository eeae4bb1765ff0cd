"""Annif backend using the ltls classifier."""

from __future__ import annotations

import os.path
from typing import TYPE_CHECKING, Any

import ltls
from ltls.settings import Text

from annif.backend import backend
from annif.exception import NotInitializedException, NotSupportedException
from annif.suggestion import SubjectSuggestion, SuggestionBatch

if TYPE_CHECKING:
    from annif.corpus import Document, DocumentCorpus


class LTLSBackend(backend.AnnifLearningBackend):
    """ltls backend for Annif."""

    name = "ltls"

    # defaults for uninitialized instances
    _model = None

    MODEL_FILE = "ltls-model.ltls"

    DEFAULT_PARAMETERS = {
        "min_df": 1,
        "ngram": 2,
        "size_budget": "",  # for example 100MB
    }

    def initialize(self, parallel: bool = False) -> None:
        if self._model is None:
            path = os.path.join(self.datadir, self.MODEL_FILE)
            self.debug(f"loading model from {path}")
            if not os.path.exists(path):
                raise NotInitializedException(
                    f"model {path} not found", backend_id=self.backend_id
                )
            self._model = ltls.load(path)

    def _normalize_text(self, text: str) -> str:
        return " ".join(self.project.analyzer.tokenize_words(text))

    def _examples(self, corpus: DocumentCorpus) -> tuple[list[str], list[list[str]]]:
        """Return texts and the URIs of their subjects, of documents that have both."""
        texts, subjects = [], []
        for doc in corpus.documents:
            text = self._normalize_text(doc.text)
            uris = [self.project.subjects[number].uri for number in doc.subject_set]
            if text and uris:
                texts.append(text)
                subjects.append(uris)
        return texts, subjects

    def _save(self) -> None:
        self._model.save(os.path.join(self.datadir, self.MODEL_FILE))

    def _train(
        self, corpus: DocumentCorpus, params: dict[str, Any], jobs: int = 0
    ) -> None:
        if corpus == "cached":
            raise NotSupportedException(
                "Training ltls project from cached data not supported."
            )
        if corpus.is_empty():
            raise NotSupportedException("Cannot train ltls project with no documents")
        texts, subjects = self._examples(corpus)
        self.info(f"training on {len(texts)} documents")
        features = Text(
            ngram_range=(1, int(params["ngram"])), min_df=int(params["min_df"])
        )
        self._model = ltls.TextClassifier(
            features=features,
            size_budget=params["size_budget"] or None,
            random_state=0,
            n_jobs=jobs or -1,
        )
        self._model.fit(texts, subjects)
        self._save()

    def _learn(self, corpus: DocumentCorpus, params: dict[str, Any]) -> None:
        self.initialize()
        texts, subjects = self._examples(corpus)
        if texts:
            self._model.partial_fit(texts, subjects)
            self._save()

    def _suggest_batch(
        self, documents: list[Document], params: dict[str, Any]
    ) -> SuggestionBatch:
        texts = [self._normalize_text(doc.text) for doc in documents]
        limit = min(int(params["limit"]), len(self._model.classes_))
        best, scores = self._model.predict_topk(texts, limit, proba=True)
        batch_results = []
        for text, uris, probabilities in zip(texts, best, scores, strict=True):
            subjects = [self.project.subjects.by_uri(uri) for uri in uris]
            pairs = zip(subjects, probabilities.tolist(), strict=True)
            results = [SubjectSuggestion(*pair) for pair in pairs]
            batch_results.append(results if text else [])
        return SuggestionBatch.from_sequence(batch_results, self.project.subjects)
