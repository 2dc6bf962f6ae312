"""``radix-rs info``: what is here and what is missing."""

from __future__ import annotations

import json
import math
import platform
import struct
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from radix_rs import RadixTree, __version__
from radix_rs.errors import InvalidInputError

# Extra -> the packages it brings, as pyproject.toml has them.
EXTRAS = {
    "cli": ("typer", "rich"),
    "engine": ("torch", "transformers", "safetensors", "tqdm", "gguf", "accelerate", "triton"),
}
# Packages that an extra brings on some platforms only.
_LINUX_ONLY = {"triton"}


def run_info(*, as_json: bool) -> None:
    """Print it.

    Parameters
    ----------
    as_json
        One JSON object instead of tables.
    """
    facts = collect()
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        Console().print(_render(facts))


def collect() -> dict[str, Any]:
    """Return everything there is to say, as plain JSON types."""
    extras = {name: _extra(packages) for name, packages in EXTRAS.items()}
    return {
        "version": __version__,
        "python": platform.python_version(),
        "numpy": _version_of("numpy"),
        "platform": f"{platform.system()} {platform.machine()}",
        "page_sizes": _page_sizes(),
        "extras": extras,
        "devices": _devices(),
        "attention_backends": _backends(),
        "embedded_model": _embedded(),
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extra(packages: tuple[str, ...]) -> dict[str, Any]:
    has_triton = platform.system() == "Linux" and platform.machine() == "x86_64"
    wanted = [name for name in packages if name not in _LINUX_ONLY or has_triton]
    found = {name: _version_of(name) for name in wanted}
    return {
        "packages": {name: known for name, known in found.items() if known is not None},
        "missing": [name for name, known in found.items() if known is None],
    }


def _page_sizes() -> list[int]:
    """Return the sizes that the core takes, by asking it."""
    sizes = []
    for power in range(32):
        try:
            RadixTree(1 << power)
        except InvalidInputError:
            break
        sizes.append(1 << power)
    return sizes


def _devices() -> list[dict[str, Any]]:
    try:
        import torch
    except ImportError:
        return []
    found: list[dict[str, Any]] = [
        {"name": "cpu", "what": platform.processor() or platform.machine(),
         "threads": torch.get_num_threads()}
    ]  # fmt: skip
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": f"cuda:{index}",
                "what": properties.name,
                "memory_bytes": properties.total_memory,
            }
        )
    return found


def _backends() -> list[str]:
    try:
        from radix_rs.attention.factory import BACKENDS
    except ImportError:
        return []
    return list(BACKENDS)


def _embedded() -> dict[str, Any]:
    """Describe the model inside the package from its files alone."""
    folder = files("radix_rs") / "model" / "embedded"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = (folder / "model.safetensors").read_bytes()
    (header_size,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + header_size])
    header.pop("__metadata__", None)
    return {
        "architecture": config["architectures"][0],
        "num_parameters": sum(math.prod(tensor["shape"]) for tensor in header.values()),
        "size_bytes": len(weights),
        "max_positions": config["max_position_embeddings"],
        "vocab_size": config["vocab_size"],
    }


def _render(facts: dict[str, Any]) -> Group:
    model = facts["embedded_model"]
    sizes = facts["page_sizes"]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("version", facts["version"])
    table.add_row("python", f"{facts['python']}, numpy {facts['numpy']}, {facts['platform']}")
    table.add_row("page sizes", f"powers of two from {sizes[0]} to {sizes[-1]}")
    table.add_row(
        "embedded model",
        f"{model['architecture']}, {model['num_parameters'] / 1e6:.2f} M parameters, "
        f"{model['size_bytes'] / 1e6:.2f} MB, texts of up to {model['max_positions']:,} tokens",
    )
    for device in facts["devices"]:
        table.add_row("device", _device_line(device))
    if facts["attention_backends"]:
        table.add_row("attention", ", ".join(facts["attention_backends"]))
    for name, extra in facts["extras"].items():
        table.add_row(f"extra {name}", _extra_line(name, extra))
    return Group(table)


def _device_line(device: dict[str, Any]) -> str:
    if "threads" in device:
        threads = device["threads"]
        return f"{device['name']}, {threads} thread{'' if threads == 1 else 's'}"
    return f"{device['name']}, {device['what']}, {device['memory_bytes'] / 2**30:.0f} GiB"


def _extra_line(name: str, extra: dict[str, Any]) -> Text:
    have = ", ".join(f"{package} {known}" for package, known in extra["packages"].items())
    if not extra["missing"]:
        return Text.assemble(("present", "green"), f"  {have}")
    missing = ", ".join(extra["missing"])
    return Text.assemble(
        ("missing", "red"), f"  {missing}: ", (f'pip install "radix-rs[{name}]"', "cyan")
    )
