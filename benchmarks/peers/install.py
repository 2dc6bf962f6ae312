"""Install the peers into an environment of their own, each from its wheel and on its own.

A peer that cannot be had is left out with the reason in ``absent.json`` of that environment; the
benchmark goes on with those that are there. Run by ``make peers-env`` with that environment's
Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Wheels without what they require: each names hundreds of packages for serving on GPUs, and the
# trees need few of them (requirements.txt).
WHEELS = {
    "SGLang": "sglang==0.5.23",
    "vLLM": "vllm==0.33.0",
    "Dynamo": "ai-dynamo-runtime==1.6.1",
}
# The last line of wheels that carries the sources of SGLang's tree in C++.
CPP_WHEEL = "sglang==0.5.10"
CPP_FOLDER = "sglang/srt/mem_cache/cpp_radix_tree/"
SITE = Path(sysconfig.get_path("purelib"))


def pip(*words: str, timeout_s: int) -> str | None:
    """Run pip; return why it failed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"not installed within {timeout_s} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"pip ended with {done.returncode}"


def cpp_sources(timeout_s: int) -> str | None:
    """Lay the sources of the tree in C++ where its adapter looks for them."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder)
        if why := pip("download", *options, CPP_WHEEL, timeout_s=timeout_s):
            return why
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(CPP_FOLDER)]
            for name in names:
                if name.endswith((".h", ".cpp")):
                    target = SITE / "sglang_cpp_tree" / Path(name).name
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(archive.read(name))
    return None if names else "the wheel has no such sources"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours", help="our own wheel")
    parser.add_argument("--timeout-s", type=int, default=600, help="for each step")
    arguments = parser.parse_args()
    absent = {}
    # Ours first: without it there is nothing to measure.
    options = ("--quiet", "--force-reinstall", "--no-deps")
    for step in (("numpy",), (*options, arguments.ours)):
        if why := pip("install", "--quiet", *step, timeout_s=arguments.timeout_s):
            sys.exit(f"our own wheel cannot be installed: {why}")
    requirements = ("--requirement", str(HERE / "requirements.txt"))
    if why := pip("install", "--quiet", *requirements, timeout_s=arguments.timeout_s):
        absent["what the peers need"] = why
    for name, wheel in WHEELS.items():
        why = pip("install", "--quiet", "--no-deps", wheel, timeout_s=arguments.timeout_s)
        if why:
            absent[name] = why
    if why := cpp_sources(arguments.timeout_s):
        absent["SGLang C++"] = why
    (Path(sys.prefix) / "absent.json").write_text(json.dumps(absent, indent=2) + "\n")
    for name, why in absent.items():
        print(f"absent: {name}: {why}")
    print("installed:", ", ".join(name for name in WHEELS if name not in absent) or "no peer")


if __name__ == "__main__":
    main()
