# One task runner. `make` alone shows what there is.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
FAULT  ?=
STAMP  := $(VENV)/.installed

.PHONY: help setup system rehearsal test lint types unit outcomes real-engine bench-load bench-decision bench-judge bench-report clean

help:
	@echo "make rehearsal          set up, then run G1 to G4 against the simulated appliance"
	@echo "make rehearsal FAULT=X  the same with a fault (list: $(BIN)/kvgate faults)"
	@echo "make test               lint, types, the library's tests"
	@echo "make real-engine        vLLM on the CPU with LMCache: G1 to G3 on a real engine"
	@echo "make bench-load         the load generator against a server that knows the truth, beside its peers"
	@echo "make bench-decision     the risks of the decision rule, by simulation"
	@echo "make bench-judge        a million requests judged: seconds and memory"
	@echo "make bench-report       seconds and pages of the report, and whether its bytes repeat"
	@echo "make clean              remove the virtual environment and caches (campaigns stay)"

setup: $(STAMP) system

# The venv is made anew when the lock changes; nothing outside the folder is touched.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $$($(PYTHON) --version) found -- make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "no venv module -- on Debian or Ubuntu: apt-get install python3-venv"; exit 2; }
	@echo "installing the locked packages into $(VENV) (about a minute)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Pango and HarfBuzz come from the system: installed where we may, else the command is printed.
system: $(STAMP)
	@command=$$($(BIN)/python -c 'from kvgate.report.system import main; raise SystemExit(main())') || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing system libraries: $$command"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$command -qq >/dev/null; \
	  else echo "system libraries are missing -- type: sudo $$command"; exit 2; fi; }

rehearsal: setup
	@$(BIN)/pytest gates -q --inventory inventories/rehearsal --new-campaign $(if $(FAULT),--fault $(FAULT))

test: setup lint types unit outcomes

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

# Two halves of about the same length side by side; both must pass, and both say what they found.
PAPER := $(addprefix tests/,report evidence cli house imports plugin contracts)
unit: setup
	@log=$$(mktemp); \
	$(BIN)/pytest $(PAPER) -q >$$log 2>&1 & first=$$!; \
	trap 'kill $$first 2>/dev/null; exit 130' INT TERM; \
	$(BIN)/pytest tests -q --ignore tests/outcomes $(PAPER:%=--ignore %); second=$$?; \
	wait $$first; first=$$?; cat $$log; rm -f $$log; \
	exit $$(( first > second ? first : second ))

# Each fault through the whole path, half a minute to a minute and a half each. A simulated engine
# mostly waits, so two of them share two cores.
EACH_FAULT := tests/outcomes/test_each_fault_has_its_outcome.py
outcomes: setup
	@log=$$(mktemp); \
	$(BIN)/pytest $(EACH_FAULT) -q >$$log 2>&1 & first=$$!; \
	$(BIN)/pytest tests/outcomes -q $(EACH_FAULT:%=--ignore %); second=$$?; \
	wait $$first; first=$$?; cat $$log; rm -f $$log; \
	exit $$(( first > second ? first : second ))

real-engine: setup
	@$(BIN)/python playbooks/roles/real_engine/files/install_engine.py var/real-engine
	@$(BIN)/pytest gates -q --inventory inventories/real-engine --new-campaign

bench-load: setup
	@$(BIN)/python benchmarks/load/bench.py
	@$(BIN)/python benchmarks/load/memory.py
	@$(BIN)/python benchmarks/load/peers.py

bench-decision: setup
	@$(BIN)/python benchmarks/decision/bench.py
	@$(BIN)/python benchmarks/decision/tails.py

bench-judge: setup
	@$(BIN)/python benchmarks/judge/bench.py

bench-report: setup
	@$(BIN)/python benchmarks/report/bench.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
