"""Options that several verbs share: one name, one meaning, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CHECK_FAILED = 1
"""Exit status of a verb that ran and found what must not be."""

TraceFolder = Annotated[Path, typer.Argument(help="Folder that `specfit record` wrote.")]
MaxPrompts = Annotated[
    int | None, typer.Option("--max-prompts", min=1, help="Replay only the first so many prompts.")
]
TablesOf = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model with the fitted tables; by default the trace's."),
]
Model = Annotated[
    str, typer.Option("--model", "-m", help="[bold]tiny[/bold] (bundled) or a checkpoint folder.")
]
Head = Annotated[
    Path | None,
    typer.Option("--head", help="EAGLE-3 head; by default the folder eagle3 of the model."),
]
OnePolicy = Annotated[
    str,
    typer.Option(
        "--policy", "-p", help="name, name:depth=5,top_k=4 or my.py:Mine. See: show policies."
    ),
]
Policies = Annotated[
    list[str],
    typer.Option("--policy", "-p", help="name, name:depth=5,top_k=4 or my.py:Mine; give several."),
]
RecordedPolicy = Annotated[
    str | None, typer.Option("--policy", "-p", help="By default the recorded one, or specfit.")
]
RecordedCache = Annotated[
    str | None, typer.Option("--cache", "-c", help="By default the recorded one, or lru:25%.")
]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the policy.")
]
OneCache = Annotated[
    str, typer.Option("--cache", "-c", help="lru:25%, lru:16 (experts a layer), lru:8GiB or none.")
]
Caches = Annotated[
    list[str],
    typer.Option("--cache", "-c", help="lru:25%, lru:16, lru:8GiB or none; give several."),
]
Cost = Annotated[
    str, typer.Option("--cost", help="profile, or a cost model of yours: my.py:MyCost.")
]
RecordedCost = Annotated[
    str | None,
    typer.Option(
        "--cost", help="profile, or a cost model of yours: my.py:MyCost; by default the recorded."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile", help="Hardware profile: a TOML file of `specfit calibrate`, or a name."
    ),
]
Overlap = Annotated[
    str | None,
    typer.Option(
        help="What hides copies: none, resident, layer or pass; by default the profile's."
    ),
]
Prefetch = Annotated[
    str,
    typer.Option(
        "--prefetch",
        help="What is copied ahead: none, previous or predicted:min_prob=0.5; oracle in replays.",
    ),
]
RecordedPrefetch = Annotated[
    str | None,
    typer.Option("--prefetch", help="As in decode, or oracle; by default the recorded one."),
]
Link = Annotated[
    str | None,
    typer.Option(
        "--link",
        help="none, pcie4, or latency+bandwidth like 20us+25GB/s: an [bold]emulated[/bold] link.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of torch; by default its own choice."),
]
DrafterSpec = Annotated[
    str | None,
    typer.Option("--drafter", help="ngram, model:FOLDER, my.py:Mine or none instead of a head."),
]
Device = Annotated[
    str,
    typer.Option("--device", help="cpu, ssd, cuda or cuda:N; no run on a GPU is on record."),
]
Dtype = Annotated[str, typer.Option("--dtype", help="Of the weights: float32 or bfloat16.")]
Experts = Annotated[
    str | None,
    typer.Option(
        "--experts",
        help="int4 or int4:64: experts are kept and copied as 4-bit codes in groups of 128 or 64.",
    ),
]
Packed = Annotated[
    Path | None,
    typer.Option("--packed", help="Folder to keep packed experts in: later starts map them."),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", help="Cache of experts in host memory, lru:50%; the rest is on a disk behind it."
    ),
]
HostOf = Annotated[
    str,
    typer.Option(
        "--host",
        help="Cache of experts in host memory before a disk: lru:50%; none, if it holds all; or "
        "trace, as recorded.",
    ),
]
RecordedHost = Annotated[
    str | None,
    typer.Option(
        "--host",
        help="Cache of experts in host memory before a disk: lru:50%; none, if it holds all; or "
        "trace, as recorded: the default, but none with --backend.",
    ),
]
Text = Annotated[str | None, typer.Option("--prompt", help="The text to continue.")]
PromptFile = Annotated[
    Path | None, typer.Option("--prompts", help="A .txt file (one a line) or .jsonl ('prompt').")
]
MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens to generate at most.")
]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sample among so many tokens; 0 is all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Sample within this probability; 1 is all.")]
MinP = Annotated[
    float,
    typer.Option("--min-p", help="Sample tokens of at least this share of the best; 0 is all."),
]
TypicalP = Annotated[
    float, typer.Option("--typical-p", help="Sample among the typical of this probability.")
]
RepetitionPenalty = Annotated[
    float,
    typer.Option("--repetition-penalty", help="Above 1: what was said comes less; greedy, too."),
]
NoRepeatNgram = Annotated[
    int,
    typer.Option("--no-repeat-ngram-size", help="No run of so many tokens comes twice; 0: all do."),
]
MinNewTokens = Annotated[
    int, typer.Option("--min-new-tokens", help="No stop token comes before so many tokens.")
]
Seed = Annotated[int, typer.Option("--seed", help="Key of the position-keyed noise.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout instead of a table.")]
