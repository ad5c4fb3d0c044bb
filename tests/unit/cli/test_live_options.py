"""The live options, declared once: every verb that decodes takes them and gets what was given."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from specfit.cli.live_options import LiveOptions, ModelOptions, TargetOptions
from specfit.cli.main import app
from specfit.cli.option_groups import with_options
from specfit.cli.replay_options import ReplayOptions
from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling

Word = Annotated[str, typer.Option("--word")]


def parameters(*verb: str) -> dict[str, Any]:
    command: Any = typer.main.get_command(app)
    for word in verb:
        command = command.commands[word]
    return {p.name: p for p in command.params}


@pytest.mark.parametrize("verb", ["decode", "chat", "watch", "record"])
def test_every_verb_that_decodes_takes_every_live_option(verb: str) -> None:
    taken = parameters(verb)
    assert {f.name: f.default for f in fields(LiveOptions)} == {
        f.name: taken[f.name].default for f in fields(LiveOptions)
    }


def test_a_replay_and_a_sweep_take_every_option_of_replays() -> None:
    """One meaning and one default each; what differs by default, as --host, is not among them."""
    shared = {f.name: f.default for f in fields(ReplayOptions)}
    for taken in map(parameters, ("replay", "sweep")):
        assert {name: taken[name].default for name in shared} == shared
    assert {f.name for f in fields(ReplayOptions)} == {
        name
        for name, of_sweep in parameters("sweep").items()
        if name not in ("cache", "policy", "as_json")
        and (of_replay := parameters("replay").get(name)) is not None
        and (of_replay.help, of_replay.default) == (of_sweep.help, of_sweep.default)
    }


def test_calibrate_takes_the_options_of_a_model_alone() -> None:
    taken = {f.name for f in fields(LiveOptions)} & set(parameters("calibrate"))
    assert taken == {f.name for f in fields(ModelOptions)}


def test_check_head_takes_the_options_of_a_target_and_a_head_of_its_own() -> None:
    taken = parameters("check", "head")
    shared = {f.name: f.default for f in fields(TargetOptions)}
    assert {name: taken[name].default for name in shared} == shared
    assert taken["head"].param_type_name == "argument"


@pytest.mark.parametrize("verb", ["record", "watch"])
def test_a_device_that_is_none_is_refused_by_verbs_that_lacked_it(
    verb: str, tmp_path: Path
) -> None:
    given = [verb, "--prompt", "a", "--profile", "pcie4-x16", "--device", "cpuu"]
    out = ["-o", str(tmp_path / "trace")] if verb == "record" else []
    ran = CliRunner().invoke(app, [*given, *out])
    assert ran.exit_code == 2 and "got 'cpuu'" in ran.stderr


def test_a_verb_gets_what_was_given_in_the_place_of_its_parameter() -> None:
    seen: list[tuple[str, LiveOptions, bool]] = []

    @with_options
    def verb(*, word: Word = "w", live: LiveOptions, as_json: bool = False) -> None:
        seen.append((word, live, as_json))

    names = list(inspect.signature(verb).parameters)
    assert names == ["word", *(f.name for f in fields(LiveOptions)), "as_json"]
    program = typer.Typer()
    program.command()(verb)
    arguments = ["--cache", "lru:16", "--packed", "there", "--seed", "3", "--as-json"]
    assert CliRunner().invoke(program, arguments).exit_code == 0
    assert seen == [("w", LiveOptions(cache="lru:16", packed=Path("there"), seed=3), True)]


def test_the_options_can_only_be_named() -> None:
    with pytest.raises(TypeError):
        LiveOptions("tiny")  # type: ignore[misc]


def test_sampling_is_that_of_the_options() -> None:
    assert LiveOptions().sampling == Sampling()
    options = LiveOptions(temperature=0.5, top_k=3, top_p=0.9, seed=7)
    assert options.sampling == Sampling(0.5, 3, 0.9, 7)
    with pytest.raises(InvalidInputError, match="temperature"):
        LiveOptions(temperature=-1.0).sampling  # noqa: B018 - the property checks
