# Two commands are all that a newcomer needs: `make demo` and `make test`.
#
# `make demo` replaces its shell (exec), so that Ctrl-C and SIGTERM reach the farm itself and make
# waits until it has cleaned up.

VENV := .venv
BIN := $(VENV)/bin
# What is passed on to `farm demo`, such as ARGS=--exit.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint bench chaos chaos-brief oldest-celery roots roots-brief compose kernel pins clean

help:
	@echo 'make demo   install into $(VENV) and run a whole farm here; ARGS=--exit stops it afterwards'
	@echo 'make test   install what tests need and run the tests of every change; needs no root and no browser'
	@echo 'make test-all  run every test, as root, for hours; when to is said in docs/extending.md'
	@echo 'make lint   check format, style and types'
	@echo 'make bench  measure what the farm itself costs, more than an hour; see docs/performance.md'
	@echo 'make chaos  let 1,000 faults strike a farm, about an hour; see docs/reliability.md'
	@echo 'make chaos-brief  let 200 strike, about ten minutes'
	@echo 'make oldest-celery  run the tests of the broker with the oldest Celery that is allowed'
	@echo 'make roots  install a farm on three booted roots of Debian, and break it, as root; see deploy/README.md'
	@echo 'make roots-brief  the same in minutes, on roots laid over this machine itself'
	@echo 'make compose  build the images and run the compose file in podman, as root, half an hour;'
	@echo '            FARM_COMPOSE_CACHE=FOLDER keeps for the next time what was built'
	@echo 'make kernel  test the emulated network on a kernel that has netem, in a guest of QEMU, as root'
	@echo 'make pins   write deploy/requirements-*.txt anew: the newest versions, with hashes'
	@echo 'make clean  remove $(VENV) and caches; what was measured stays'

demo: $(VENV)/installed-run
	@exec $(BIN)/farm demo $(ARGS)

# Tests of every change. Most of them wait for processes most of the time, so one more than there are
# cores run at once, the longest files first. The tests that are marked slow are left to `test-all`.
WORKERS ?= $(shell expr $$(nproc) + 1)
EVERYWHERE := not root and not browser and not campaign and not booted and not compose
IN_PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Without bytecode on disk every process of every farm that a test starts would compile the farm anew.
test test-all: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/installed-dev
	$(BIN)/pytest $(IN_PARALLEL) -m "not slow and not alone and $(EVERYWHERE)"

# Every test. Those that measure time have the cores to themselves. What needs root or a browser is
# skipped, with its reason, where there is none.
test-all: $(VENV)/installed-examples
	$(BIN)/pytest $(IN_PARALLEL) --hypothesis-profile=explore -m "not alone and $(EVERYWHERE)"
	$(BIN)/pytest -m "alone and $(EVERYWHERE)"
	$(BIN)/pytest -m "root or browser"
	$(MAKE) oldest-celery
	$(MAKE) roots-brief
	$(MAKE) chaos-brief
	$(MAKE) compose
	$(MAKE) kernel

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compare]'
	$(BIN)/python -m benchmarks --write docs/performance.md

# pyproject.toml allows two minor versions of Celery; farm/broker/transport.py overrides private parts
# of Kombu, and nothing else does. All other tests have the newer one.
oldest-celery: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps \
	    --target build/oldest-celery 'celery==5.6.*' 'kombu==5.6.*' 'redis==6.4.*'
	PYTHONPATH=$(CURDIR)/build/oldest-celery $(BIN)/pytest -n $(WORKERS) --dist loadfile \
	    -m "not alone and $(EVERYWHERE)" tests/unit/broker tests/integration/broker tests/integration/collector

chaos: $(VENV)/installed-dev
	MODEL_EXAMPLES=3000 $(BIN)/pytest tests/property/gang/test_protocol_model.py
	$(BIN)/pytest tests/e2e/faults/test_faults.py -m campaign
	$(BIN)/python -m tests.chaos --faults 1000 --farms 2 --write docs/reliability.md

# The lease is one that a machine with other things to do holds, too.
chaos-brief: export FARM_CHAOS_LEASE_S := $(or $(FARM_CHAOS_LEASE_S),12)
chaos-brief: $(VENV)/installed-dev
	$(BIN)/pytest -m campaign -k whatever_strikes tests/e2e/faults/test_faults.py

# Needs Debian's debootstrap and systemd-container. SUITE=trixie or noble: on Debian 13, or Ubuntu 24.04.
roots: export FARM_TEST_SUITE := $(or $(SUITE),bookworm)
roots: $(VENV)/installed-dev
	$(BIN)/pytest -s -m booted tests/e2e/deploy/test_booted_farm.py tests/e2e/deploy/test_booted_by_hand.py

# Needs systemd-container and what the installer takes from Debian.
roots-brief: export FARM_TEST_SUITE := $(or $(SUITE),own)
roots-brief: $(VENV)/installed-dev
	$(BIN)/pytest -s -m "booted and not thorough" tests/e2e/deploy/test_booted_farm.py

compose: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[compose]'
	$(BIN)/pytest -m compose -s tests/e2e/deploy/test_compose.py

# Needs root and Debian, from which it takes QEMU and a kernel. KERNEL_CACHE says where they stay.
kernel: $(VENV)/installed-dev
	tests/kernel/run.sh

PIN := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --upgrade

# Needs uv (https://docs.astral.sh/uv); whoever installs what it writes needs pip alone.
pins:
	$(PIN) pyproject.toml --extra server --extra ml --output-file deploy/requirements-server.txt
	$(PIN) pyproject.toml --extra agent --output-file deploy/requirements-agent.txt
	$(PIN) pyproject.toml --extra agent-gpu --constraint deploy/requirements-agent.txt \
	    --output-file deploy/requirements-agent-gpu.txt
	echo 'torch>=2.13,<2.14' | $(PIN) - --constraint deploy/requirements-agent.txt \
	    --output-file deploy/requirements-torch.txt  # the version that is tested
	echo 'hatchling>=1.27,<2' | $(PIN) - --output-file deploy/requirements-build.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find farm worker_agent web benchfarm tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml only if that installation went through to its end.
$(VENV)/installed-run: EXTRAS := server,agent,embedded
$(VENV)/installed-dev: EXTRAS := server,agent,embedded,dev
# What tests need includes what the demo needs.
$(VENV)/installed-dev: ALSO := $(VENV)/installed-run
$(VENV)/installed-run $(VENV)/installed-dev: export SCRIPT = $(CREATE_VENV)
$(VENV)/installed-run $(VENV)/installed-dev: pyproject.toml
	@sh -euc "$$SCRIPT"
	@echo 'Installing into $(VENV); the first time takes minutes, mostly for TensorFlow'
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@ $(ALSO)

# pyproject.toml says why tf_keras comes without what it requires.
$(VENV)/installed-examples: $(VENV)/installed-dev
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[examples]'
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps 'tf_keras>=2.21,<2.22'
	@touch $@

# TensorFlow 2.21 has wheels for Python 3.11 to 3.13. Debian ships Python without the module that
# puts pip into a virtual environment, so a Python that has it is preferred.
define CREATE_VENV
if $(BIN)/python -m pip --version >/dev/null 2>&1; then exit; fi
lacking=
for python in python3 python3.13 python3.12 python3.11; do
    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $$version in 3.11 | 3.12 | 3.13) ;; *) continue ;; esac
    if $$python -c 'import ensurepip, venv' 2>/dev/null; then
        echo "Creating $(VENV) with Python $$version"
        exec $$python -m venv --clear $(VENV)
    fi
    lacking=$${lacking:-$$version}
done
if [ "$$lacking" ]; then
    echo "Python $$lacking cannot make virtual environments:" \
        "run 'sudo apt install python$$lacking-venv' or what your system has for it" >&2
else
    found=$$(python3 --version 2>&1) || found='no python3'
    echo "Python: expected 3.11, 3.12 or 3.13 on PATH, got $$found: install one of them" >&2
fi
exit 1
endef
