"""The options of replays: declared once, and added to `specfit replay` and `specfit sweep`."""

from __future__ import annotations

from dataclasses import dataclass

from specfit.cli import options
from specfit.cli.input_specs import Acceptance, Predictor
from specfit.cli.option_groups import OptionGroup


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(OptionGroup):
    """What a trace is replayed with beside policy, cache and what the trace says by default.

    Parameters
    ----------
    profile : str, optional
        Name or file of a hardware profile; by default the trace's.
    overlap : str, optional
        What hides copies; by default the profile's.
    model : str, optional
        Model with the fitted tables; by default the trace's.
    predictor, acceptance : str, optional
        Specs of the inputs of selection; by default the model's own.
    max_prompts : int, optional
        Replay only the first so many prompts.
    """

    profile: options.Profile = None
    overlap: options.Overlap = None
    model: options.TablesOf = None
    predictor: Predictor = None
    acceptance: Acceptance = None
    max_prompts: options.MaxPrompts = None
