"""Take the pictures of the documentation: the page of a cycle in a headless Chromium, the panel.

    python tools/screenshots.py demo-results/trace --prompt 8 --cycle 4 --node 7

The trace is that of `specfit demo`. What the pictures show is whatever the program shows then.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "how-to"
SIZE = "1760,800"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--prompt", default="0")
    parser.add_argument("--cycle", default="0")
    parser.add_argument("--cache", default="lru:50%")
    parser.add_argument("--node", default="1", help="node to point at")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("this needs a chromium on the path.")
    with tempfile.TemporaryDirectory() as name:
        page = Path(name) / "cycle.html"
        given = ["--prompt", options.prompt, "--cycle", options.cycle, "--cache", options.cache]
        command = [sys.executable, "-m", "specfit.cli", "explain", str(options.trace), *given]
        subprocess.run([*command, "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
        shoot(chromium, page, "cycle-page.png", f"point({options.node});")
        moved = "at('cache').value = 0; show();"
        shoot(chromium, page, "cycle-page-moved.png", f"{moved} point({options.node});")
        panel = page.with_name("watch.html")
        panel.write_text(f"<body style='margin:0'>{panel_svg(options.trace)}</body>", "utf-8")
        shoot(chromium, panel, "watch.png", "", size="1000,260")


def shoot(chromium: str, page: Path, name: str, script: str, size: str = SIZE) -> None:
    """Open the page, do what the script says, and keep a picture of it."""
    text = page.read_text("utf-8").replace("</body>", f"<script>{script}</script></body>")
    shown = page.with_name("shown.html")
    shown.write_text(text, "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    picture = f"--screenshot={PICTURES / name}"
    command = [chromium, *flags, f"--window-size={size}", picture, shown.as_uri()]
    subprocess.run(command, check=True, capture_output=True)


def panel_svg(trace: Path) -> str:
    """Return the panel of `specfit watch` after a replay of the trace's first text, as SVG."""
    from rich.console import Console

    from specfit.backends.tokens import token_decoder
    from specfit.cli.inputs import inputs_of_trace
    from specfit.cli.replay import hardware_of
    from specfit.cli.specs import cost_from, policy_from
    from specfit.cli.watch_panel import Run, panel
    from specfit.core.cache import make_cache
    from specfit.data import model_folder
    from specfit.sim.plain_estimate import PlainEstimate
    from specfit.sim.replay import replay
    from specfit.sim.trace import TraceReader

    reader = TraceReader(trace)
    hardware, geometry = hardware_of(reader, None), reader.metadata.geometry
    inputs = inputs_of_trace(reader.metadata, None)
    decode = token_decoder(model_folder(str(reader.metadata.specs["model"])))
    run = Run(decode, PlainEstimate(make_cache("lru:50%", geometry), hardware))
    results = replay(
        reader,
        policy_from("specfit"),
        make_cache("lru:50%", geometry),
        hardware,
        cost=cost_from("profile", hardware),
        predictor=inputs.predictor,
        acceptance=inputs.acceptance,
        observers=[run],
        max_prompts=1,
    )
    next(iter(results))
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    title = "specfit watch: specfit, cache lru:50% (seconds simulated)"
    console.print(panel(run, title, columns=80, lines=16))
    svg = console.export_svg(title="specfit watch", unique_id="watch")
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # nothing is fetched


if __name__ == "__main__":
    main()
