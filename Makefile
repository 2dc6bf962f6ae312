# Needs Python 3.11 or later, a Rust toolchain and a package index; everything else lands in VENV.
#
#   make demo    a real model answers conversations that share prefixes, with and without the cache
#   make test    everything that must hold before a change lands
#   make lint    the part of it that reads the sources only
#   make bench   the benchmarks, each with its table
#   make loom    every race of the protocol under every schedule of two preemptions (loom), two minutes or so
#   make shuttle whole trees and caches under tens of thousands of schedules (shuttle), a minute or so
#   make peers-env, make bench-tree, make bench-peers
#                the tree next to its peers, from Python and in Rust: ratios of one run
#   make soak    the random tests for long: an hour or so, optimised
#   make fuzz    libFuzzer over lives of a cache and of a tree, FUZZ_SECONDS each (an hour)
#   make tsan, make asan  tests of many threads under a sanitizer, and the extension in Python: some minutes
#   make lockfree  one thread stopped for ever before every step of every operation: a minute

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip
# Where cargo puts what it builds; one place for the extension, the tests and the wheel.
export CARGO_TARGET_DIR ?= $(CURDIR)/target

RUST_SOURCES := $(shell find rust -name '*.rs' -not -path '*/target/*' -not -path '*/benches/*') $(shell find . -name Cargo.toml -not -path '*/target/*' -not -path './.venv*' -not -path '*/benches/*') $(wildcard Cargo.lock)
# What stands in for the atomics, and where it is built: each changes every crate, so each has a place of its own.
CHECKED := rust/radix-rs-loom
IN_CHECKED := --manifest-path $(CHECKED)/Cargo.toml
LOOM := CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom RUSTFLAGS="--cfg radix_loom"
SHUTTLE := CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/shuttle RUSTFLAGS="--cfg radix_shuttle"

PY_CHECKED := python kernels tests $(wildcard benchmarks examples tools)

.PHONY: demo test lint bench peers-env bench-tree bench-peers soak loom shuttle loom-short lockfree fuzz tsan asan develop rust-lint rust-test python-lint python-test package clean fuzz-short

demo: $(VENV)/.run
	$(VENV)/bin/radix-rs demo

test: lint rust-test loom-short package python-test

lint: rust-lint python-lint

develop: $(VENV)/.dev

# --- Rust -----------------------------------------------------------------------------------------

rust-lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTFLAGS="--cfg radix_pause --cfg radix_planted" cargo clippy -p radix-rs --tests \
		--target-dir $(CARGO_TARGET_DIR)/pause -- -D warnings
	cargo fmt --check --manifest-path $(CHECKED)/Cargo.toml
	cargo fmt --check --manifest-path rust/radix-rs/fuzz/Cargo.toml
	$(LOOM) cargo clippy $(IN_CHECKED) --all-targets -- -D warnings
	$(SHUTTLE) cargo clippy $(IN_CHECKED) --all-targets -- -D warnings

rust-test:
	cargo test -p radix-rs
	$(MAKE) lockfree PAUSE_EVERY=4
	$(MAKE) fuzz-short
	RUSTDOCFLAGS="-D warnings" cargo doc -p radix-rs --no-deps

# libFuzzer is C++; where there is no compiler for it, the same lives are tried by tests/model.rs with random bytes.
fuzz-short:
	@if command -v c++ >/dev/null; then \
		echo "tools/fuzz, 15 seconds a life"; \
		FUZZ_SECONDS=15 tools/fuzz >$(CARGO_TARGET_DIR)/fuzz.log 2>&1 || { tail -40 $(CARGO_TARGET_DIR)/fuzz.log; exit 1; }; \
	else echo "SKIPPED: libFuzzer needs a C++ compiler, and there is none"; fi

# A build of its own, with a pause point before every access to an atomic.
PAUSE_EVERY ?= 1
lockfree:
	RUSTFLAGS="--cfg radix_pause" PAUSE_EVERY=$(PAUSE_EVERY) cargo test -p radix-rs --test lockfree --test linear \
		--target-dir $(CARGO_TARGET_DIR)/pause

loom:
	$(LOOM) cargo test $(IN_CHECKED) --test loom

shuttle:
	$(SHUTTLE) cargo test $(IN_CHECKED) --test shuttle

# A slice of both: every model with one preemption, a tenth of the schedules, and all controls.
loom-short:
	$(LOOM) LOOM_MAX_PREEMPTIONS=1 cargo test $(IN_CHECKED) --test loom
	$(SHUTTLE) RADIX_SCHEDULES=0.1 cargo test $(IN_CHECKED) --test shuttle

fuzz:
	tools/fuzz

tsan: $(VENV)/.dev
	PY=$(PY) tools/sanitize thread

asan: $(VENV)/.dev
	PY=$(PY) tools/sanitize address

soak: $(VENV)/.dev
	PROPTEST_CASES=200000 STRESS_ROUNDS=200 cargo test --release -p radix-rs
	RADIX_RS_HYPOTHESIS_PROFILE=long $(PY) -m pytest tests/property

# The crate on its own, as a registry would build it.
package:
	cargo package -p radix-rs --allow-dirty

# --- Python ---------------------------------------------------------------------------------------

python-lint: $(VENV)/.dev
	$(PY) -m ruff check $(PY_CHECKED)
	$(PY) -m ruff format --check $(PY_CHECKED)
	$(PY) -m mypy
	$(PY) -m pytest -m lint tests/house

python-test: $(VENV)/.dev
	$(PY) -m pytest -m "not lint"

bench: $(VENV)/.dev
	@for file in $(filter-out benchmarks/tree_python.py,$(wildcard benchmarks/[a-z]*.py)); do echo "== $$file"; $(PY) $$file || exit 1; done

# --- Peers: an environment and a workspace of their own, so that nothing of ours needs them ----------

PEERS_VENV ?= .venv-peers
PEERS := rust/radix-rs/benches/peers
# More words for the benchmarks: BENCH="--full --json tree.json".
BENCH ?=

# Our own package as it is shipped, and each peer from its wheel; who cannot be had is left out and named.
peers-env:
	$(PYTHON) -m venv $(PEERS_VENV)
	rm -rf $(CARGO_TARGET_DIR)/peers-wheel
	$(PEERS_VENV)/bin/python -m pip install --quiet 'maturin>=1.13,<2'
	$(PEERS_VENV)/bin/python -m maturin build --release --out $(CARGO_TARGET_DIR)/peers-wheel --interpreter $(PEERS_VENV)/bin/python
	$(PEERS_VENV)/bin/python benchmarks/peers/install.py $(CARGO_TARGET_DIR)/peers-wheel/*.whl

bench-tree:
	$(PEERS_VENV)/bin/python benchmarks/tree_python.py $(BENCH)

bench-peers:
	cargo run --release --manifest-path $(PEERS)/Cargo.toml -- $(BENCH)

# --- The environment: stamps, so that a second run starts at once ---------------------------------

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# What running needs. The package is installed in place: Python files are read where they lie, the
# extension is built again when a Rust source is newer than the stamp.
$(VENV)/.run: $(VENV)/.venv pyproject.toml $(RUST_SOURCES)
	$(PIP) install --editable '.[cli,engine]'
	touch $@

# A superset of it, so it counts for both.
$(VENV)/.dev: $(VENV)/.venv pyproject.toml $(RUST_SOURCES)
	$(PIP) install --editable '.[dev]'
	touch $(VENV)/.run $@

clean:
	rm -rf $(VENV) target dist
