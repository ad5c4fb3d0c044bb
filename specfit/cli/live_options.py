"""The options of live decoding: declared once, and added to every verb that loads a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specfit.cli import options
from specfit.cli.input_specs import Acceptance, Predictor
from specfit.cli.option_groups import OptionGroup

if TYPE_CHECKING:
    from specfit.core.noise import Sampling


@dataclass(frozen=True, kw_only=True)
class TargetOptions(OptionGroup):
    """Which target is loaded, and where it runs; each field is an option of the command line.

    Parameters
    ----------
    model : str
        Bundled model or checkpoint folder.
    threads : int, optional
        Threads of torch; by default its own choice.
    device, dtype : str
        Where to compute and the weights' type.
    packed : Path, optional
        Folder of packed experts.
    experts : str, optional
        How experts are kept; by default as the checkpoint has them.
    host : str, optional
        Spec of the cache of experts in host memory; by default it holds all.
    """

    model: options.Model = "tiny"
    threads: options.Threads = None
    device: options.Device = "cpu"
    dtype: options.Dtype = "float32"
    packed: options.Packed = None
    experts: options.Experts = None
    host: options.Host = None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(TargetOptions):
    """The target, what drafts for it, and the link of its experts.

    Parameters
    ----------
    head : Path, optional
        Folder of the draft head; by default that of the model.
    drafter : str, optional
        What drafts instead of a head.
    link : str, optional
        Spec; by default the profile's emulated link, and none without a profile.
    """

    head: options.Head = None
    drafter: options.DrafterSpec = None
    link: options.Link = None


@dataclass(frozen=True, kw_only=True)
class LiveOptions(ModelOptions):
    """What the command line says about live decoding.

    Parameters
    ----------
    cache, cost, prefetch : str
        Specs.
    profile : str, optional
        Name or file of a hardware profile; without one the machine is measured.
    temperature, top_k, top_p, seed, min_p, typical_p, repetition_penalty, no_repeat_ngram_size,
    min_new_tokens
        How the target's tokens are drawn; see `Sampling`.
    predictor, acceptance : str, optional
        Specs of the inputs of selection; by default the model's own.
    """

    cache: options.OneCache = "lru:25%"
    cost: options.Cost = "profile"
    prefetch: options.Prefetch = "none"
    profile: options.Profile = None
    temperature: options.Temperature = 0.0
    top_k: options.TopK = 0
    top_p: options.TopP = 1.0
    seed: options.Seed = 0
    min_p: options.MinP = 0.0
    typical_p: options.TypicalP = 1.0
    repetition_penalty: options.RepetitionPenalty = 1.0
    no_repeat_ngram_size: options.NoRepeatNgram = 0
    min_new_tokens: options.MinNewTokens = 0
    predictor: Predictor = None
    acceptance: Acceptance = None

    @property
    def sampling(self) -> Sampling:
        """How the target's tokens are drawn.

        Raises
        ------
        InvalidInputError
            A number is out of its range.
        """
        from specfit.core.noise import Sampling

        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            noise_key=self.seed,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repetition_penalty=self.repetition_penalty,
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            min_new_tokens=self.min_new_tokens,
        )
