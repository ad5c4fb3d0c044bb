"""`docs/reference/contracts.md` lists every rule as its check says it.

After a change: ``python -m tests.contract_meta.test_page > docs/reference/contracts.md``.
"""

from __future__ import annotations

import re
from pathlib import Path

from specfit.testing import (
    AcceptanceContract,
    BackendContract,
    CostModelContract,
    CoveragePredictorContract,
    ExpertCacheContract,
    PolicyContract,
    PrefetcherContract,
    SimulatorContract,
    TraceContract,
)
from specfit.testing.contract import Contract
from specfit.testing.device_contract import DeviceContract

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contracts.md"
KINDS: dict[str, type[Contract]] = {
    "Policy": PolicyContract,
    "Cost model": CostModelContract,
    "Expert cache": ExpertCacheContract,
    "Coverage predictor": CoveragePredictorContract,
    "Acceptance model": AcceptanceContract,
    "Prefetcher": PrefetcherContract,
    "Backend and drafter": BackendContract,
    "Simulator": SimulatorContract,
    "Trace": TraceContract,
    "Device": DeviceContract,
}
HEAD = """# Contracts

What a plug-in of each kind must keep. The rules are code: `specfit check policy my.py:Mine` runs
them on a policy, `specfit check cost`, `cache`, `predictor`, `acceptance` and `prefetcher`
likewise, and status 1 names the first rule that is broken. In one's own tests there is one test a
rule:

```python
from specfit.testing import PolicyContract


class TestMine(PolicyContract):
    make = staticmethod(lambda: Mine(min_path_prob=0.1))
```

Each rule has a mutant in `tests/contract_meta`: a plug-in that breaks only it, and must be told so.
"""


def page() -> str:
    """Return the page as the checks have it."""
    parts = [HEAD]
    for kind, contract in KINDS.items():
        rows = [
            f"| {rule} | {method.split('_', 2)[2].replace('_', ' ')} | {said(contract, method)} |"
            for rule, method in rules(contract)
        ]
        head = [f"\n## {kind}\n", "| rule | in short | what is tried |", "|---|---|---|"]
        parts.append("\n".join([*head, *rows, ""]))
    return "".join(parts)


def rules(contract: type[Contract]) -> list[tuple[str, str]]:
    return sorted(contract.rules().items(), key=lambda rule: (rule[0][0], int(rule[0][1:])))


def said(contract: type[Contract], method: str) -> str:
    """Return what a rule says: the first paragraph of its docstring on one line."""
    text = getattr(contract, method).__doc__ or ""
    return re.sub(r"\s+", " ", text.split("\n\n")[0]).strip()


def test_the_page_is_what_the_checks_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "see the head of this file"


if __name__ == "__main__":
    print(page(), end="")
