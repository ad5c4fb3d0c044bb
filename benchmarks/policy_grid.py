"""What every rival is tried with: its published parameters first, then a small grid.

Trees are cut to what the traces hold: `top_k` 8 up to depth 4, 4 up to depth 6, 2 and chains up to
12. Where a paper's tree is larger, the first entry is the largest that is recorded.
"""

from __future__ import annotations

from specfit.core.tree import DraftPlan

PLANS = (DraftPlan(12, 1, 64), DraftPlan(12, 2, 64), DraftPlan(6, 4, 128), DraftPlan(4, 8, 256))
"""Plans whose pools hold every tree of the grids."""

GRIDS: dict[str, tuple[str, ...]] = {
    "autoregressive": ("autoregressive",),
    "chain": tuple(f"chain:depth={depth}" for depth in (5, 1, 2, 3, 4, 7)),
    "eagle3": (
        "eagle3:depth=4,top_k=8,max_nodes=60",
        "eagle3:depth=1,top_k=2,max_nodes=3",
        "eagle3:depth=2,top_k=2,max_nodes=4",
        "eagle3:depth=3,top_k=2,max_nodes=6",
        "eagle3:depth=4,top_k=4,max_nodes=8",
        "eagle3:depth=5,top_k=4,max_nodes=16",
        "eagle3:depth=6,top_k=4,max_nodes=32",
    ),
    "opt-tree": (
        "opt-tree:depth=4,top_k=8,max_nodes=50",
        *(
            f"opt-tree:depth=6,top_k=4,max_nodes={n},threshold={t}"
            for n, t in ((3, 0.3), (5, 0.3), (5, 0.6), (8, 0.3), (16, 0.3))
        ),
    ),
    "sequoia": (
        "sequoia:depth=6,top_k=4",
        "sequoia:depth=6,top_k=4,paid=0.5",
        "sequoia:depth=6,top_k=4,paid=0.3",
        "sequoia:depth=6,top_k=4,paid=0.15",
    ),
    "specexec": (
        "specexec:depth=4,top_k=8,max_nodes=256",
        "specexec:depth=6,top_k=4,max_nodes=4",
        "specexec:depth=6,top_k=4,max_nodes=8",
        "specexec:depth=6,top_k=4,max_nodes=64",
        "specexec:depth=6,top_k=4,max_nodes=64,min_log_prob=-1",
        "specexec:depth=6,top_k=4,max_nodes=64,min_log_prob=-0.5",
    ),
    "dyspec": (
        "dyspec:depth=4,top_k=8,max_nodes=64",
        "dyspec:depth=6,top_k=2,max_nodes=3",
        "dyspec:depth=6,top_k=2,max_nodes=5",
        "dyspec:depth=6,top_k=4,max_nodes=8",
        "dyspec:depth=6,top_k=4,max_nodes=16",
    ),
    "ddd": (
        "ddd:depth=6,top_k=4",
        "ddd:depth=6,top_k=2,max_nodes=4,first_check=1,check_every=1,threshold=-0.4",
        "ddd:depth=6,top_k=4,max_nodes=8,first_check=1,check_every=1,threshold=-0.4",
        "ddd:depth=6,top_k=4,max_nodes=16,first_check=1,check_every=1,threshold=-0.7",
    ),
    "svip": ("svip:depth=12", *(f"svip:depth=12,threshold={t}" for t in (0.1, 0.2, 0.4, 0.5))),
    "adaedl": (
        "adaedl:depth=12",
        *(f"adaedl:depth=12,first_threshold={t}" for t in (0.4, 0.6, 0.7, 0.8)),
    ),
    "talon": (
        "talon:depth=4,top_k=8",
        *(
            f"talon:depth=6,top_k=4,max_nodes={n},ratio={ratio}"
            for n, ratio in ((8, 0.1), (8, 0.3), (16, 0.3))
        ),
        "talon:depth=6,top_k=2,max_nodes=4,ratio=0.5",
    ),
    "cascade": (
        "cascade",
        "cascade:first_depth=1,depth=4",
        "cascade:first_depth=1,depth=4,trial_cycles=2,set_cycles=32",
    ),
    "evict": (
        "evict",
        "evict:depth=6,top_k=2,paid=0.5",
        *(
            f"evict:depth={depth},top_k=2,paid={paid},calibrated=true"
            for depth in (3, 6)
            for paid in (1.0, 0.5, 0.3)
        ),
    ),
    "yggdrasil": (
        "yggdrasil:depth=4",
        "yggdrasil:depth=6,top_k=2,paid=0.5",
        *(f"yggdrasil:depth=3,top_k=2,paid={paid},calibrated=true" for paid in (1.0, 0.5, 0.3)),
    ),
    "ecospec": ("ecospec", "ecospec:num_picks=1", "ecospec:num_picks=2", "ecospec:depth=2"),
    "s2-moe": (
        "s2-moe:depth=6",
        *(
            f"s2-moe:depth=6,top_k=2,expert_scale={scale},calibrated=true"
            for scale in (1.0, 0.5, 0.3)
        ),
    ),
    "s2-moe-static": (
        "s2-moe-static:depth=12",
        *(
            f"s2-moe-static:depth=6,expert_scale={scale},calibrated=true"
            for scale in (1.0, 0.5, 0.3)
        ),
    ),
    "draftexpert": (
        "draftexpert",
        *(
            f"draftexpert:min_prob={prob},max_missing={missing}"
            for prob, missing in ((0.7, 4), (0.9, 0), (0.9, 8), (0.7, 16))
        ),
    ),
    "moe-speq": ("moe-speq", "moe-speq:depth=3,first_prob=0.6", "moe-speq:depth=8,memory=0.97"),
}

BLIND = frozenset(
    (
        *("autoregressive", "chain", "eagle3", "opt-tree", "specexec", "dyspec", "ddd", "svip"),
        *("adaedl", "talon", "ecospec", "draftexpert"),
    )
)
"""Rivals that decide without a time: one replay serves every bandwidth."""

OURS = "specfit"
"""One setting for all cells: the default."""

REFERENCES = (
    "reference-experts:depth=6,top_k=2",
    "reference-truth:depth=6,top_k=2",
)
"""Exact choices of each cycle with the truth known: no bounds on a run."""


def rival_of(spec: str) -> str:
    """Return the name of the policy of a spec."""
    return spec.partition(":")[0]
