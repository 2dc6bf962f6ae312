"""The command: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")
pytest.importorskip("torch")

import radix_rs
from radix_rs import LLM, SamplingParams, __version__, cli
from radix_rs.cli import demo as demo_module
from radix_rs.cli import demo_view, generate, info, problems
from radix_rs.cli.commands import commands
from radix_rs.cli.story import SYSTEM, TALKS, Talk
from typer.testing import CliRunner, Result

QUESTION = "Why is the sky blue?"
FEW = (
    Talk("a", (QUESTION, "What is my name?")),
    Talk("b", ("My name is Clara.", "What colour is a lemon?")),
)
WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
sys.argv = ["radix-rs", *sys.argv[2:]]
from radix_rs.cli import app
app()
"""


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(commands, arguments, input=stdin, env={"COLUMNS": "100"})


def without(packages: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where these packages cannot be imported."""
    command = [sys.executable, "-c", WITHOUT, packages, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def only_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


@pytest.fixture(scope="module")
def answer() -> str:
    """What the embedded model says, by the API."""
    with LLM(num_slots=1024) as llm:
        message = [{"role": "user", "content": QUESTION}]
        params = SamplingParams(temperature=0.0, max_tokens=12)
        return llm.generate(message, params, progress=False)[0].text


@pytest.fixture
def few_talks(monkeypatch: pytest.MonkeyPatch):
    """Let the demo talk less, of the same things."""
    monkeypatch.setattr(demo_module, "TALKS", FEW)
    monkeypatch.setattr(demo_module, "SYSTEM", SYSTEM[:800])


# --- help and version -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["demo", "generate", "info"])
def test_help_has_examples(command: str):
    shown = run(command, "--help")
    assert shown.exit_code == 0
    assert re.search(rf"Examples?:\s+.*radix-rs {command}", shown.output, re.DOTALL)


def test_without_arguments_there_is_help():
    assert "demo" in run().output


def test_the_version_is_shown():
    shown = run("--version")
    assert (shown.exit_code, shown.output) == (0, f"radix-rs {__version__}\n")


def test_help_needs_no_torch():
    done = without("torch,transformers", "demo", "--help")
    assert done.returncode == 0


# --- extras ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packages", "arguments", "extra"),
    [
        ("typer", ("--help",), "cli"),
        ("rich,rich.console", ("info",), "cli"),
        ("torch", ("demo",), "engine"),
        ("torch", ("demo", "--json"), "engine"),
        ("transformers", ("generate", "x"), "engine"),
    ],
)
def test_a_missing_extra_is_named(packages: str, arguments: tuple[str, ...], extra: str):
    done = without(packages, *arguments)
    assert done.returncode == 2
    assert f'pip install "radix-rs[{extra}]"' in only_line(done.stderr)
    assert packages.partition(",")[0] in done.stderr


def test_info_works_without_the_engine(monkeypatch: pytest.MonkeyPatch):
    done = without("torch,transformers", "info", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["devices"] == facts["attention_backends"] == []
    assert facts["embedded_model"]["vocab_size"] > 256

    there = info._version_of
    monkeypatch.setattr(info, "_version_of", lambda name: None if name == "torch" else there(name))
    shown = run("info").output
    assert re.search(r"extra engine\s+missing\s+torch", shown)
    assert 'pip install "radix-rs[engine]"' in shown


def test_info_knows_the_extras_of_the_package(repository: Path):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {re.match(r"[\w.-]+", one)[0] for one in needs}
        for extra, needs in project["optional-dependencies"].items()
        if extra != "dev"
    }
    assert {extra: set(names) for extra, names in info.EXTRAS.items()} == declared


def test_info_says_what_is_true():
    shown = run("info", "--json")
    facts = json.loads(only_line(shown.output))
    assert facts["version"] == __version__
    assert facts["page_sizes"] == [1 << power for power in range(11)]
    assert facts["devices"][0]["name"] == "cpu"
    assert facts["attention_backends"]
    with LLM(num_slots=16) as llm:
        module = llm._model.module
        assert facts["embedded_model"]["num_parameters"] == module.num_parameters()
        assert facts["embedded_model"]["vocab_size"] == llm.vocab_size


# --- generate -------------------------------------------------------------------------------------


def test_a_prompt_may_be_an_argument(answer: str):
    shown = run("generate", QUESTION, "--max-tokens", "12", "--num-slots", "1024")
    assert shown.exit_code == 0
    assert shown.stdout == answer + "\n"
    assert "12 new" in shown.stderr
    assert "end: length" in shown.stderr


def test_a_prompt_may_come_from_standard_input(answer: str):
    shown = run("generate", "--no-stream", "--max-tokens", "12", stdin=QUESTION + "\n")
    assert shown.stdout == answer + "\n"


def test_a_prompt_may_come_from_a_file_and_without_the_cache(tmp_path: Path, answer: str):
    file = tmp_path / "question.txt"
    file.write_text(QUESTION)
    options = ("--no-prefix-caching", "--page-size", "16", "--max-tokens", "12", "--json")
    shown = run("generate", "--file", str(file), *options)
    result = json.loads(only_line(shown.stdout))
    assert set(result) == {"model", "prompt", "outputs"}
    assert result["prompt"] == QUESTION
    (output,) = result["outputs"]
    assert output["text"] == answer
    assert output["finish_reason"] == "length"
    assert output["usage"]["completion_tokens"] == len(output["token_ids"]) == 12


def test_sampling_options_arrive():
    options = ("--raw", "--temperature", "0.9", "--top-k", "50", "-n", "3", "--max-tokens", "8")
    texts = []
    for seed in ("1", "1", "2"):
        shown = run(
            "generate", "Once upon", *options, "--seed", seed, "--max-tokens", "8", "--json"
        )
        texts.append([output["text"] for output in json.loads(shown.stdout)["outputs"]])
    assert len(set(texts[0])) > 1
    assert texts[0] == texts[1] != texts[2]


def test_a_stop_text_ends():
    shown = run("generate", QUESTION, "--stop", "blue")
    assert "blue" not in shown.stdout
    assert "end: stop" in shown.stderr


def test_tokens_of_several_continuations_are_said_to_be_a_sum():
    shown = run("generate", "hi", "-n", "2", "--ignore-eos", "--max-tokens", "3")
    assert "6 new in all 2 continuations together" in shown.stderr


def test_a_flag_takes_no_value_in_the_help():
    for line in run("generate", "--help").output.splitlines():
        assert "<bool>" not in line or "--help" in line


def test_a_system_prompt_comes_first():
    llm = SimpleNamespace(tokenizer=SimpleNamespace(chat_template="x"))
    messages = generate._messages(llm, "hi", "Be kind.", is_raw=False)
    assert [message["role"] for message in messages] == ["system", "user"]
    bare = SimpleNamespace(tokenizer=SimpleNamespace(chat_template=None))
    assert generate._messages(bare, "hi", None, is_raw=False) == "hi"
    with pytest.raises(ValueError, match="chat template"):
        generate._messages(bare, "hi", "Be kind.", is_raw=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "the prompt is empty"),
        (("x", "--file", "y"), "not both"),
        (("--file", "/nowhere/at/all"), "prompt: /nowhere/at/all: No such file"),
        (("x", "--raw", "--system", "y"), "--system"),
        (("x", "--temperature", "-1"), "temperature is -1.0; it must be at least 0"),
        (("x", "--max-tokens", "0"), "max_tokens is 0; it must be at least 1"),
        (("x", "--threads", "0"), "threads cannot be 0"),
        (("x", "--threads", "100000"), "threads cannot be 100000"),
        (("x", "--page-size", "3"), "page_size is 3"),
        (("x", "--num-slots", "0"), "num_slots is 0;"),
        (("x", "--dtype", "int3"), "int3"),
        (("x", "--device", "toaster"), "'toaster'"),
        (("x", "--device", "meta"), "'meta'"),
        (("a \udcff b",), "UTF-8"),
        (("x", "--model", "./nowhere"), "nowhere"),
        (("word " * 9000,), "leaves no room"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str):
    shown = run("generate", *arguments)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    line = only_line(shown.stderr)
    assert line.startswith("error: ")
    assert message in line


def test_a_lack_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def fail(*_, **__):
        raise RuntimeError("can't allocate memory\nsome frames of C++")

    monkeypatch.setattr(radix_rs, "LLM", fail)
    shown = run("generate", "x")
    assert shown.exit_code == 2
    assert only_line(shown.stderr) == "error: cannot set up the model: can't allocate memory"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    file = tmp_path / "picture"
    file.write_bytes(b"\xff\xfe\x00\x80")
    shown = run("generate", "--file", str(file))
    assert shown.exit_code == 2
    assert "UTF-8" in only_line(shown.stderr)


def test_an_unknown_option_is_refused():
    assert run("generate", "x", "--hurry").exit_code == 2


def test_a_fault_of_ours_keeps_its_traceback():
    with pytest.raises(AssertionError), problems.one_line_errors():
        raise AssertionError("ours")


def test_text_that_a_terminal_cannot_show_is_no_fault():
    memory = io.BytesIO()
    stream = io.TextIOWrapper(memory, encoding="ascii")
    cli._never_fail(stream)
    stream.write("a \N{SNOWMAN} b")
    stream.flush()
    assert memory.getvalue() == b"a ? b"


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_an_interrupt_ends_without_a_traceback():
    command = [sys.executable, "-m", "radix_rs.cli", "generate", "--raw", "Once upon a time"]
    options = ["--ignore-eos", "--max-tokens", "8000"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.read(1)  # it is in the middle of its work
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert only_line(errors) == "interrupted"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a POSIX shell and /dev/full")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("generate <&-", 2, "error: there is no prompt: standard input is closed"),
        ("generate x --max-tokens 2 >&-", 1, "error: standard output is closed"),
        ("info --json >&-", 1, "error: standard output is closed"),
        ("info >/dev/full", 1, "No space left"),
        ("--help >/dev/full", 1, "No space left"),
        ("generate x --max-tokens 2 >/dev/full", 1, "No space left"),
        ("generate x --max-tokens 2 --json >/dev/full", 1, "No space left"),
        ("demo --max-tokens 1 --json >/dev/full", 1, "No space left"),
        ("demo --max-tokens 1 >/dev/full", 1, "No space left"),
    ],
)
def test_streams_that_are_closed_or_full_are_one_line(arguments: str, code: int, message: str):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m radix_rs.cli {arguments}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    line = only_line(done.stderr)
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_closed_standard_error_is_no_fault(answer: str):
    line = f"{sys.executable} -m radix_rs.cli generate '{QUESTION}' --max-tokens 12 2>&-"
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, answer + "\n")


def test_an_interrupt_while_modules_are_loaded_ends_without_a_traceback():
    code = """
import builtins, sys
from radix_rs.cli import app
load, wanted = builtins.__import__, sys.argv[1]
def interrupted(name, *rest):
    if name == wanted:
        raise KeyboardInterrupt
    return load(name, *rest)
builtins.__import__ = interrupted
sys.argv = ["radix-rs", "generate", "x"]
app()
"""
    for module in ("radix_rs.cli.commands", "torch"):
        command = [sys.executable, "-c", code, module]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 130
        assert only_line(done.stderr) == "interrupted"


# --- demo -----------------------------------------------------------------------------------------


def test_the_demo_counts_and_compares(few_talks: None):
    shown = run("demo", "--json", "--max-tokens", "8")
    assert shown.exit_code == 0, shown.output
    result = json.loads(only_line(shown.stdout))
    assert set(result) == {
        "equal", "computed_tokens", "reused_tokens", "token_hit_rate", "ttft_cold_s",
        "ttft_warm_s", "kv_bytes_saved",
    }  # fmt: skip
    assert result["equal"] is True
    assert result["reused_tokens"] > result["computed_tokens"] > 0
    assert 0.5 < result["token_hit_rate"] < 1
    assert result["ttft_cold_s"] > 0 < result["ttft_warm_s"]
    assert result["kv_bytes_saved"] > 0


def test_both_runs_of_the_demo_do_the_same_work(few_talks: None):
    params = SamplingParams(temperature=0.0, max_tokens=8)
    runs = []
    for is_warm in (False, True):
        with LLM(dtype="float32", num_slots=4096, enable_prefix_caching=is_warm) as llm:
            runs.append(demo_module.play(llm, FEW, params, demo_view.Silent()))
    cold, warm = runs
    assert cold.reused_tokens == 0
    assert cold.computed_tokens == warm.computed_tokens + warm.reused_tokens
    assert [a.token_ids for turn in cold.answers for a in turn] == [
        a.token_ids for turn in warm.answers for a in turn
    ]
    cached = sum(answer.usage.cached_tokens for turn in warm.answers for answer in turn)
    assert warm.reused_tokens == cached
    # The second prompt shares the system prompt of the first, the second turn what came before.
    own = [answer.usage.prompt_tokens - answer.usage.cached_tokens for answer in warm.answers[1]]
    assert max(own) < 20


def test_the_demo_shows_answers_and_a_verdict(few_talks: None):
    shown = run("demo", "--max-tokens", "8", "--page-size", "16")
    assert shown.exit_code == 0, shown.output
    for talk in FEW:
        assert all(f"> {question}" in shown.output for question in talk.turns)
    assert "Hello Clara!" in shown.output
    assert re.search(r"tokens computed +[\d,]+ +[\d,]+ +[\d.]+ times fewer", shown.output)
    assert "outputs are equal  4 answers" in shown.output


@pytest.mark.parametrize("options", [("--json",), ()])
def test_a_difference_is_shown_and_is_the_exit_code(
    few_talks: None, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
):
    played = demo_module.play

    def play(llm, talks, params, watcher):
        result = played(llm, talks, params, watcher)
        if result.reused_tokens == 0:
            return result
        first, second = result.answers
        wrong = replace(second[1], token_ids=(1, 2), text="A lemon is plaid.")
        return replace(result, answers=(first, (second[0], wrong)))

    monkeypatch.setattr(demo_module, "play", play)
    shown = run("demo", "--max-tokens", "6", *options)
    assert shown.exit_code == 1
    if options:
        assert json.loads(only_line(shown.stdout))["equal"] is False
    else:
        assert "outputs differ" in shown.output
        assert "with cache: A lemon is plaid." in shown.output
        assert "outputs are equal" not in shown.output


def test_a_pool_too_small_for_the_demo_is_said_to_be():
    shown = run("demo", "--num-slots", "512", "--json")
    assert shown.exit_code == 2
    assert "leaves no room" in only_line(shown.stderr)


def test_a_model_without_a_template_is_asked_in_plain_text():
    llm = SimpleNamespace(tokenizer=SimpleNamespace(chat_template=None))
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi."}]
    assert demo_module._prompt(llm, chat) == "System: Be kind.\nUser: Hi.\nAssistant:"
    with pytest.raises(ValueError, match="tokenizer"):
        demo_module._prompt(SimpleNamespace(tokenizer=None), chat)


def test_all_conversations_of_the_demo_have_as_many_turns():
    assert len({len(talk.turns) for talk in TALKS}) == 1
