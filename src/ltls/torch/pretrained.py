"""Pretrained encoders: models of transformers, and folders of sentence-transformers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

POOLINGS = ("mean", "cls", "max", "lasttoken")
# As sentence-transformers named them before version 6.
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# The length of vectors that Normalize sets is nothing that the stages need.
_KNOWN_MODULES = {"Transformer", "Pooling", "Normalize"}


def load_pretrained(
    source: str | os.PathLike[str],
    tokenizer: Any,
    pooling: str | None,
    safe: bool | None,
    has_tokenizer: bool,
) -> tuple[Any, Any, str]:
    """Return the model of a name or folder, its tokenizer, and how vectors are pooled.

    `tokenizer` and `pooling` replace those of the model.
    """
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise ImportError(
            f"encoder={str(source)!r} needs transformers: pip install 'ltls[encoders]'"
        ) from error
    try:
        modules = _json(source, "modules.json") or []
        if pooling is None:
            pooling = _pooling(source, modules)
        where = {"subfolder": modules[0]["path"] if modules else ""}
        if has_tokenizer and tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(source, **where)
            about = _json(source, os.path.join(where["subfolder"], "sentence_bert_config.json"))
            if longest := (about or {}).get("max_seq_length"):
                tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
        return AutoModel.from_pretrained(source, use_safetensors=safe, **where), tokenizer, pooling
    except OSError as error:
        raise OSError(f"encoder={str(source)!r} cannot be loaded: {error}") from error


def _pooling(source: Any, modules: list[dict[str, str]]) -> str:
    """Return the pooling of a model of sentence-transformers, "mean" for other models."""
    kinds = {each["type"].rpartition(".")[2]: each["path"] for each in modules}
    unknown = sorted(kinds.keys() - _KNOWN_MODULES)
    mode: Any = "mean"
    if "Pooling" in kinds:
        config = _json(source, f"{kinds['Pooling']}/config.json") or {}
        old = [name for key, name in _OLD_POOLINGS.items() if config.get(key)]
        mode = config.get("pooling_mode") or (old[0] if len(old) == 1 else old or "mean")
    if mode not in POOLINGS:
        unknown.append(f"Pooling with {mode!r}")
    if unknown:
        raise ValueError(
            f"encoder={str(source)!r} has modules that are not supported: {', '.join(unknown)}; "
            f"pass encoder=SentenceTransformer({str(source)!r}), or choose pooling to use the "
            "transformer alone"
        )
    return str(mode)


def _json(source: Any, name: str) -> Any:
    """Return the content of a file of a model, None if it has no such file."""
    from transformers.utils.hub import cached_file

    path = cached_file(
        source,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,  # it has none in the cache
    )
    return None if path is None else json.loads(Path(path).read_text("utf-8"))


def is_sentence_transformer(model: Any) -> bool:
    """Return whether a module has the interface of a `SentenceTransformer`."""
    return all(hasattr(model, name) for name in ("tokenize", "tokenizer", "max_seq_length"))
