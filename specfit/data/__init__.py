"""Files that ship with the package, by name: models, prompts, hardware profiles, routing."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from specfit.core.errors import CheckpointError, did_you_mean

FOLDER = Path(__file__).parent
PROMPTS = FOLDER / "prompts"
"""`demo.jsonl`; `tune.jsonl`, on which parts are fitted and machines measured; `heldout.jsonl`."""

ESFT_ROUTING = FOLDER / "routing" / "deepseek_v2_lite_esft.npz"
"""Routing of DeepSeek-V2-Lite: a cut of the data, 12 texts of 1,545 tokens in all."""


def profile_files() -> dict[str, Path]:
    """Return the files of the shipped hardware profiles, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("profiles/*.toml"))}


def bundled_models() -> dict[str, Path]:
    """Return the folders of the bundled models, by name."""
    return {path.parent.name: path.parent for path in sorted(FOLDER.glob("*/config.json"))}


def model_folder(model: str | Path, others: Collection[str] = ()) -> Path:
    """Return the checkpoint folder of a bundled model's name or of a path.

    Parameters
    ----------
    others : collection of str
        Names that the caller knows beside these, for the message.

    Raises
    ------
    CheckpointError
        There is no such model; the message names the nearest.
    """
    bundled = bundled_models()
    if str(model) in bundled:
        return bundled[str(model)]
    if (Path(model) / "config.json").is_file():
        return Path(model)
    known = [*bundled, *others]
    raise CheckpointError(
        f"no model '{model}': it must be a folder with a config.json, or one of "
        f"{', '.join(known)}.{did_you_mean(str(model), known)}"
    )
