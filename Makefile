# What a developer does with ckptz. It needs Python 3.10 or newer with venv and pip, and Rust; all
# else goes into $(VENV). Stamps there tell what has been installed, so that nothing is done twice.

PYTHON ?= python3
VENV ?= .venv
# What may lie beside the checkout, and need not: a folder that `make bench` and CI use if it is there.
SHARED ?= ../shared
# Snapshots for `make bench`: the large set in that folder, else the demo's.
TRACES ?= $(firstword $(wildcard $(SHARED)/traces) examples/data)
# Packages that `make bench` measures ckptz beside, kept from the rest.
PEERS ?= .venv-peers
# Where ckpt-chaos is, which kills a training run.
CHAOS ?= .venv-chaos

# Seconds that `make fuzz` gives each target.
FUZZ_SECONDS ?= 60
# Seconds of `make faults`, about.
FAULT_SECONDS ?= 420

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
RUST := Cargo.toml Cargo.lock pyproject.toml $(shell find src -name '*.rs')
LINTED := $(wildcard python tests benches examples tools fuzz/*.py)
# Tests of what the core computes, which must be the same without vector code.
PORTABLE := $(addprefix tests/python/test_,golden.py closed_loop.py codec.py paper.py damage.py)
REFERENCE := $(wildcard $(TRACES)/paper_reference.json)
LINKS := $(addprefix --find-links ,$(wildcard $(SHARED)/wheels))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint test-rust test-python bench fuzz faults faults-long wheel-check venv clean distclean

help:
	@echo "make demo         pack real snapshots, restore every step, draw ratio and error"
	@echo "make test         everything: format, lints, types, Rust and Python tests"
	@echo "make lint         the first three of these"
	@echo "make test-rust    Rust tests alone"
	@echo "make test-python  Python tests alone"
	@echo "make bench        speed of the core; sizes and errors on $(TRACES); peers side by side"
	@echo "make fuzz         any bytes into every reader of the core, $(FUZZ_SECONDS) s each (nightly, cargo-fuzz)"
	@echo "make faults       failing system calls, power cuts, damage, races, for minutes; faults-long: hours"
	@echo "make wheel-check  build a wheel and run the demo from it, in an environment of its own"
	@echo "make clean        delete what was built; make distclean: the environments too"

demo: $(VENV)/.demo-installed
	@$(PY) examples/demo.py

test: lint test-rust test-python

lint: $(VENV)/.test-installed
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	PYO3_PYTHON=$(abspath $(PY)) cargo clippy --quiet --all-targets --features python -- -D warnings
	$(PY) -m ruff check --quiet $(LINTED)
	$(PY) -m ruff format --check --quiet $(LINTED)
	$(PY) -m mypy

# Each with the vector code that the machine has, without AVX-512, and with the portable twins alone.
# nextest runs no examples in the documentation.
test-rust:
	@if cargo nextest --version >/dev/null 2>&1; \
	then set -x; cargo nextest run && CKPTZ_SIMD=avx2 cargo nextest run && CKPTZ_SIMD=portable cargo nextest run && cargo test --quiet --doc; \
	else set -x; cargo test --quiet && CKPTZ_SIMD=avx2 cargo test --quiet && CKPTZ_SIMD=portable cargo test --quiet; fi

test-python: $(VENV)/.test-installed
	$(PY) -m pytest
	CKPTZ_SIMD=avx2 $(PY) -m pytest $(PORTABLE)
	CKPTZ_SIMD=portable $(PY) -m pytest $(PORTABLE)

# Writes docs/benchmarks.md.
bench: $(VENV)/.test-installed $(PEERS)/.installed
	cargo bench
	$(PY) benches/figures.py $(TRACES) $(addprefix --reference ,$(REFERENCE))
	PYTHONPATH=python $(PEERS)/bin/python benches/compare.py $(TRACES) --markdown docs/benchmarks.md

# No part of `make test`: it needs a nightly compiler, and is never done.
fuzz:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { echo "make fuzz needs a nightly compiler" \
		"and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz"; exit 1; }
	$(PYTHON) fuzz/seeds.py
	for target in $$(cargo +nightly fuzz list); do \
		cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=20 \
			-verbosity=0 -print_final_stats=1 || exit 1; done

# Wants strace and leave to attach it, root, mkfs.ext4 and mkfs.xfs; says what it must leave out.
faults: $(VENV)/.test-installed $(CHAOS)/.installed
	CHAOS=$(CHAOS) $(PY) tests/faults/campaign.py --seconds $(FAULT_SECONDS)

faults-long: FAULT_SECONDS := 20000
faults-long: faults

wheel-check: $(PY)
	rm -rf build
	$(PIP) wheel --no-deps --wheel-dir build .
	$(PYTHON) -m venv build/venv
	build/venv/bin/python -m pip --quiet --disable-pip-version-check install "$$(ls build/*.whl)[plots]"
	build/venv/bin/ckptz --version
	build/venv/bin/python examples/demo.py --out build/demo

venv: $(VENV)/.test-installed

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "ckptz needs Python 3.10 or newer; say which: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The extension is built with all optimisation, which takes minutes the first time. `-e`: changes
# in Python need no installing. Python 3.10 may come with a pip that is too old for it.
$(VENV)/.demo-installed: $(RUST) | $(PY)
	@echo "installing ckptz into $(VENV): minutes the first time, no time after"
	$(PIP) install 'pip>=22'
	$(PIP) install --editable '.[plots]'
	@touch $@

$(VENV)/.test-installed: $(RUST) | $(PY)
	@echo "installing ckptz into $(VENV): minutes the first time, no time after"
	$(PIP) install 'pip>=22'
	$(PIP) install --editable '.[test]'
	@touch $@ $(VENV)/.demo-installed

# A peer that cannot be installed is left out; the page names it. The core is the one in python/.
$(PEERS)/.installed: benches/peers.txt
	@echo "installing what ckptz is compared with into $(PEERS)"
	$(PYTHON) -m venv $(PEERS)
	@grep -v '^#' $< | while read -r package; do \
		$(PEERS)/bin/python -m pip --quiet --disable-pip-version-check install $(LINKS) "$$package" \
		|| echo "left out: $$package"; done
	@touch $@

$(CHAOS)/.installed:
	@echo "installing ckpt-chaos into $(CHAOS)"
	$(PYTHON) -m venv $(CHAOS)
	@$(CHAOS)/bin/python -m pip --quiet --disable-pip-version-check install $(LINKS) ckpt-chaos \
		|| echo "left out: ckpt-chaos"
	@touch $@

clean:
	rm -rf target build demo-out .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f python/ckptz/_core*.so $(VENV)/.demo-installed $(VENV)/.test-installed
	find python tests benches examples -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(PEERS) $(CHAOS)
