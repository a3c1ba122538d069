# The few verbs. `make up` needs Python 3.11 or newer; the rest is set up on the first use, and so are the programs that
# the tests need, as root where apt is (tests/machine.py).

# Take the fastest suitable Python on the machine: one built without optimisation needs twice the CPU
# (docs/decisions/0004-the-interpreter.md). Each is measured twice, since other work on the machine slows some moments.
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

# Cancellation, system calls and the start of containers differ between versions of Python.
ON_NEWEST := tests/process tests/reconcile tests/model tests/sdk/operator/test_interrupted_handlers.py tests/node/agent/process/test_watch_dog.py \
	tests/node/agent/status/test_ready.py tests/node/agent/volumes/test_hostile_volumes.py tests/node/agent/test_published_attacks.py \
	tests/node/images/test_published_attacks.py tests/node/runtime/embedded/start/test_container_start.py \
	tests/node/runtime/embedded/start/test_published_escapes.py tests/network/policy tests/hostile/test_kubelet_port.py

.PHONY: help up test newest soak check check-pyright check-types check-style bench docs dist clean
.DEFAULT_GOAL := help

help: ## List the verbs.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.up ## Start a cluster in the foreground and print how to reach it. ARGS="--port 0" passes flags on.
	@$(BIN)/pinnace up $(ARGS)

test: $(VENV)/.dev ## Run every test. ARGS="-k watch" passes arguments on to pytest.
	@$(BIN)/python -m tests.machine
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

newest: $(VENV)/.dev ## Run the tests that depend on the interpreter and the kernel with the newest Python of this machine.
	@newest=$$(for p in python3.15 python3.14 python3.13 python3.12 $(wildcard $(HOME)/.pyenv/versions/3.*/bin/python); do \
		$$p -c 'import sys, venv, ensurepip; print("%03d.%03d.%03d" % sys.version_info[:3], sys.executable)' 2>/dev/null; \
		done | sort | tail -n 1); \
	if $(BIN)/python -c "import sys; sys.exit('%03d.%03d' % sys.version_info[:2] >= '$${newest%% *}'[:7])"; then \
		$(MAKE) --no-print-directory test VENV=.venv-newest PYTHON="$${newest#* }" ARGS="$(ON_NEWEST) $(ARGS)"; \
	else \
		echo "SKIPPED: this machine has no newer Python than that of $(VENV)"; \
	fi

soak: $(VENV)/.dev ## Run the tests that take long: fuzzing of clients, every dimension of the complexity test.
	@$(BIN)/python -m tests.machine
	@$(BIN)/python -m pytest --numprocesses auto --dist load --timeout 3600 -m soak $(ARGS)

check: $(VENV)/.dev ## Check style, types, import rules, words, sizes and the owners of tasks.
	@$(MAKE) --no-print-directory --jobs 2 check-pyright check-types check-style

# The three run side by side. mypy runs twice in one of them, since both runs write the same cache.
check-pyright: $(VENV)/.dev
	@$(BIN)/basedpyright --project . --pythonpath $(BIN)/python

check-types: $(VENV)/.dev
	@$(BIN)/mypy
	@$(BIN)/mypy --strict examples/*/*.py
	@$(BIN)/python -m tools.field_ledger --check

check-style: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/python tools/words.py src tests bench tools examples docs *.md
	@$(BIN)/python tools/sizes.py
	@$(BIN)/python tools/tasks.py
	@$(BIN)/python tools/typed_objects.py --check
	@$(BIN)/python tools/sync_client.py --check
	@$(BIN)/python tools/reference.py --check

bench: $(VENV)/.dev ## Measure the cost of requests, custom resources, operators and control loops. Needs wrk and curl.
	@$(BIN)/python bench/api.py
	@$(BIN)/python -m bench.custom_resources
	@$(BIN)/python bench/request_stages.py
	@$(BIN)/python bench/reconciling.py
	@$(BIN)/python -m bench.take_over
	@$(BIN)/python -m bench.testing
	@$(BIN)/python bench/control_loops.py
	@$(BIN)/python bench/scheduling.py
	@$(BIN)/python bench/autoscaling.py
	@$(BIN)/python -m bench.stores
	@$(BIN)/python -m bench.watchers
	@$(BIN)/python -m bench.separate_processes
	@$(BIN)/python -m bench.pods
	@$(BIN)/python bench/network.py
	@$(BIN)/python bench/website.py

docs: $(VENV)/.dev ## Build the documentation as a web site in build/site, with search, offline.
	@$(BIN)/python tools/site.py build/site
	@echo "open build/site/README.html"

dist: $(VENV)/.up ## Build the wheels and sdists, and test the wheels in empty environments.
	@$(BIN)/python -m tools.dist

clean: ## Remove what the other verbs have set up.
	rm -rf $(VENV) .venv-newest build dist

$(VENV)/bin/python:
	@python="$(PYTHON)"; \
	test -n "$$python" || { echo "pinnace needs Python 3.11 or newer with venv: install it, or name it with PYTHON=..."; exit 1; }; \
	echo "setting up $(VENV) with $$python"; \
	$$python -m venv $(VENV)

$(VENV)/.up: $(VENV)/bin/python pyproject.toml build_definitions.py
	@echo "installing pinnace and its dependencies (once, about half a minute)"
	@$(PIP) install --editable .
	@$(BIN)/python -m compileall -q src || true
	@touch $@

$(VENV)/.dev: $(VENV)/.up
	@echo "installing the dependencies of tests and checks (once, about a minute)"
	@$(PIP) install --editable '.[dev]'
	@touch $@
