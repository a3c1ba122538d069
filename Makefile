# The few verbs. Nothing but Python 3.11 or newer and make is needed: the rest is set up on the first use.

# Of the Pythons here that will do, the quickest: one built without optimisation needs twice the CPU
# (docs/decisions/0004-the-interpreter.md). Each is looked at twice, since other work on the machine slows some moments.
PACE := import sys, time, venv, ensurepip; one = lambda i: (i, "x").count(i) + len([i, {"a": i}.get("a")]); \
	work = lambda: (time.process_time(), [one(i) for i in range(5000)])[0]; \
	sys.version_info < (3, 11) and sys.exit(1); print(f"{min(-work() + time.process_time() for _ in range(60)):.6f}")
PYTHONS := python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for p in $(PYTHONS) $(PYTHONS); do \
	t=$$($$p -c '$(PACE)' 2>/dev/null) && echo "$$t $$p"; done | LC_ALL=C sort -n | head -n 1 | cut -d ' ' -f 2)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
ARGS ?=

.PHONY: help up test check bench clean
.DEFAULT_GOAL := help

help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.up ## Start a cluster in the foreground and say how to reach it. ARGS="--port 0" are passed on.
	@$(BIN)/pinnace up $(ARGS)

test: $(VENV)/.dev ## Run every test. ARGS="-k watch" are passed on to pytest.
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(ARGS)

check: $(VENV)/.dev ## Check style, types and the rules of who may import whom.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.dev ## Measure what requests, custom resources and operators cost, beside kube-apiserver and kopf. Needs wrk and curl.
	@$(BIN)/python bench/api.py
	@$(BIN)/python -m bench.custom_resources
	@$(BIN)/python bench/gates.py
	@$(BIN)/python bench/reconciling.py

clean: ## Remove what the verbs have set up.
	rm -rf $(VENV) build dist src/pinnace/kinds/data

$(VENV)/bin/python:
	@python="$(PYTHON)"; \
	test -n "$$python" || { echo "pinnace needs Python 3.11 or newer with venv: install it, or name it with PYTHON=..."; exit 1; }; \
	echo "setting up $(VENV) with $$python"; \
	$$python -m venv $(VENV)

$(VENV)/.up: $(VENV)/bin/python pyproject.toml build_definitions.py
	@echo "installing pinnace and what it needs (once, about half a minute)"
	@$(PIP) install --editable .
	@$(BIN)/python -m compileall -q src || true
	@touch $@

$(VENV)/.dev: $(VENV)/.up
	@echo "installing what the tests and checks need (once, about a minute)"
	@$(PIP) install --editable '.[dev]'
	@touch $@
