"""Live decoding as the options describe it: backend, link, hardware profile, inputs, cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from specfit.cli.console import progress
from specfit.cli.inputs import Inputs
from specfit.cli.live_options import LiveOptions, ModelOptions
from specfit.cli.specs import LinkSpec, cost_from, link_from, prefetcher_from, profile_from
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop, Observer
from specfit.core.errors import InvalidInputError
from specfit.data import model_folder

if TYPE_CHECKING:
    from rich.progress import Progress

    from specfit.backends.torch_backend import TorchBackend
    from specfit.core.cost import CostModel
    from specfit.core.policy import Policy
    from specfit.core.prefetch import Prefetcher
    from specfit.core.profile import HardwareProfile


@dataclass(frozen=True, eq=False)
class Live:
    """Everything that decoding needs but the policy."""

    options: LiveOptions
    backend: TorchBackend
    profile: HardwareProfile
    inputs: Inputs
    cost: CostModel
    prefetcher: Prefetcher | None = None

    def request(self, prompt: str, max_new_tokens: int) -> Request:
        """Return the request to continue a text, ended by the model's own stop tokens.

        Raises
        ------
        InvalidInputError
            The text has no token, is no text, or does not fit in the model's context.
        """
        try:
            tokens = self.backend.tokenizer(prompt, verbose=False).input_ids
        except UnicodeEncodeError:
            raise InvalidInputError(
                "the prompt must be UTF-8 text. Check the terminal's encoding."
            ) from None
        stop_ids, sampling = self.backend.stop_ids, self.options.sampling
        request = Request(tuple(tokens), max_new_tokens, stop_ids, sampling)
        self.backend.check_request(request)
        return request

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of some tokens, special ones left out."""
        return str(self.backend.tokenizer.decode(tokens, skip_special_tokens=True))

    def loop(self, policy: Policy, observers: Sequence[Observer] = ()) -> DecodeLoop:
        """Return the decode loop with a policy."""
        return DecodeLoop(
            self.backend,
            policy,
            self.cost,
            self.inputs.predictor,
            self.inputs.acceptance,
            observers,
            prefetcher=self.prefetcher,
        )

    @property
    def link_label(self) -> str:
        """Say what the copies went over; an emulated link is called so."""
        link = self.backend.device.link
        if link is None:
            return str(self.backend.device.describe_link()["what"])
        return (
            f"link EMULATED ({link.latency_s * 1e6:.0f} us + "
            f"{link.bandwidth_bytes_per_s / 1e9:.3g} GB/s)"
        )

    def specs(self) -> dict[str, Any]:
        """Return what a result must say beside its policy."""
        said, head = self.backend.describe(), self.options.head
        return {
            "model": self.options.model,
            "head": None if head is None else str(head),
            "cache": self.options.cache,
            "host": self.options.host,
            "prefetch": self.options.prefetch,
            **{
                key: said[key]
                for key in ("drafter", "device", "precision", "weight_format", "link")
            },
            "sampling": asdict(self.options.sampling),
            "cost": self.cost.to_spec(),
            "predictor": self.inputs.predictor.to_spec(),
            "acceptance": self.inputs.acceptance.to_spec(),
            "profile": self.profile.name,
            "seed": self.options.seed,
        }


@contextmanager
def open_live(options: LiveOptions, bars: Progress | None = None) -> Iterator[Live]:
    """Load the model and set up all that the options ask for; close it at the end.

    Parameters
    ----------
    bars : Progress, optional
        The progress display in use, if there is one.

    Raises
    ------
    CheckpointError, CapacityError, UnknownPluginError, InvalidInputError
        The model, the cache, the profile or a spec cannot be used.
    """
    from specfit.cli.input_specs import Named, chosen_live
    from specfit.core.search import warm_up as warm_up_search
    from specfit.policies.practice import warm_up as warm_up_cycle

    folder, sampling = model_folder(options.model), options.sampling
    link = None if options.link is None else link_from(options.link)
    given = None if options.profile is None else profile_from(options.profile)
    prefetcher = prefetcher_from(options.prefetch, live=True)
    with load_backend(options, cache=options.cache, bars=bars) as backend:
        named = Named(options.predictor, options.acceptance)
        inputs = chosen_live(folder, options.head, named, backend.geometry, sampling)
        profile = connect(backend, given or measured_profile(backend, bars), link)
        if options.host is not None and not profile.ssd_s:
            raise InvalidInputError(
                f"a host tier needs a disk behind it; the profile '{profile.name}' has none. "
                f"Measure one with specfit calibrate --host, or leave --profile out."
            )
        cost = cost_from(options.cost, profile)
        warm_up_search()
        width = backend.keep_states() if inputs.predictor.needs_states else 0
        warm_up_cycle(inputs.predictor, inputs.acceptance, backend.geometry, width)
        yield Live(options, backend, profile, inputs, cost, prefetcher)


def load_backend(
    options: ModelOptions, *, cache: str = "lru:25%", bars: Progress | None = None
) -> TorchBackend:
    """Return the backend that the options describe, without their link.

    Parameters
    ----------
    cache : str
        Spec of its expert cache.
    bars : Progress, optional
        The progress display in use, if there is one.

    Raises
    ------
    CheckpointError, CapacityError, UnknownPluginError, InvalidInputError
        The model, its head, the drafter, the device or the cache cannot be used.
    """
    from specfit.backends import load

    with progress() if bars is None and options.packed else nullcontext(bars) as shown:
        return load(
            options.model,
            head=options.head,
            drafter=options.drafter,
            cache=cache,
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            packed=options.packed,
            experts=options.experts,
            host=options.host,
            on_layer=None if shown is None else _layer_bar(shown),
        )


def _layer_bar(bars: Progress) -> Callable[[int, int], None]:
    """Return what moves a bar by the layers of experts that have been loaded."""
    task = bars.add_task("loading experts", total=None)
    return lambda done, total: bars.update(task, completed=done, total=total)


def measured_profile(backend: TorchBackend, bars: Progress | None = None) -> HardwareProfile:
    """Measure this machine with the loaded model; a few seconds."""
    from specfit.backends.calibrate import calibrate

    with progress() if bars is None else nullcontext(bars) as shown:
        task = shown.add_task("calibrating this machine", total=None)
        return calibrate(
            backend, on_step=lambda done, total: shown.update(task, completed=done, total=total)
        )


def connect(
    backend: TorchBackend, profile: HardwareProfile, link: LinkSpec | None
) -> HardwareProfile:
    """Emulate the link on the backend and return the profile with its numbers.

    Parameters
    ----------
    profile : HardwareProfile
        Of this machine.
    link : LinkSpec, optional
        By default that of an emulated profile, and none otherwise.
    """
    from specfit.backends.calibrate import pcie4_link
    from specfit.backends.device import EmulatedLink

    if link is None and profile.kind == "emulated":
        link = LinkSpec("given", profile.copy_latency_s, profile.h2d_bandwidth_bytes_per_s)
    if link is None or link.kind == "none":
        return profile
    emulated = (
        pcie4_link(profile, backend.geometry)
        if link.kind == "pcie4"
        else EmulatedLink(link.latency_s, link.bandwidth_bytes_per_s)
    )
    backend.set_link(emulated)
    return replace(
        profile,
        kind="emulated",
        copy_latency_s=emulated.latency_s,
        h2d_bandwidth_bytes_per_s=emulated.bandwidth_bytes_per_s,
    )
