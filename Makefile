# One verb per wish. `make help` lists them.
CARGO ?= cargo
# Where Cargo builds. Everything else that is made lies in target/.
BUILD := $(or $(CARGO_TARGET_DIR),target)
VENV  := target/venv
PY    := $(VENV)/bin/python
TORCH_VENV := target/venv-torch
TORCH_PY   := $(TORCH_VENV)/bin/python
PEERS_VENV := target/venv-peers
PEERS_PY   := $(PEERS_VENV)/bin/python
RELEASE_VENV := target/venv-release
RELEASE_PY   := $(RELEASE_VENV)/bin/python
# Another CPython with a GIL, 3.11 or later, to test on.
OTHER_PYTHON = python3.13
OTHER_VENV   = target/venv-$(notdir $(OTHER_PYTHON))
OTHER_PY     = $(OTHER_VENV)/bin/python
# A CPython without a GIL, 3.14 or later, to build and test for.
FREE_THREADED_PYTHON := python3.14t
FREE_THREADED_VENV   := target/venv-free-threaded
FREE_THREADED_PY     := $(FREE_THREADED_VENV)/bin/python
# The interpreter in a virtual environment is a link to the system's, so a file of its own says when packages were installed.
READY       := $(VENV)/ready
TORCH_READY := $(TORCH_VENV)/ready
PEERS_READY := $(PEERS_VENV)/ready
BENCH_READY := $(TORCH_VENV)/bench-ready
RELEASE_READY := $(RELEASE_VENV)/ready
FREE_THREADED_READY := $(FREE_THREADED_VENV)/ready
TOOLS := target/tools/bin
BARE_ROOT := target/bare-root
# Programs of others, where they are installed already; else into target/tools.
CARGO_DENY := $(or $(shell command -v cargo-deny),$(TOOLS)/cargo-deny)
ETCD       := $(or $(LARDER_ETCD_SERVER),$(shell command -v etcd),$(TOOLS)/etcd)
GARAGE     := $(or $(LARDER_GARAGE),$(shell command -v garage),$(TOOLS)/garage)

SEEDS := 10000

# Several process tests run at once, since they mostly wait for other processes.
TEST_THREADS := 6
# Runs Rust tests that $(1) selects: with nextest where it is installed, else with Cargo. Both build the whole workspace,
# so that all verbs share one build.
ifneq ($(shell command -v cargo-nextest),)
run-tests = $(CARGO) nextest run --locked --workspace --no-fail-fast $(1)
run-doctests = $(CARGO) test --locked --workspace --doc --quiet
else
run-tests = RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test --locked --workspace --no-fail-fast $(1)
run-doctests = true
endif
TEST_ENV = LARDER_ETCD_SERVER=$(abspath $(ETCD)) LARDER_TEST_PYTHON=$(abspath $(PY))

.PHONY: help sim demo test test-quick test-full check fmt bench bench-cold bench-larger bench-python bench-peers bench-formats bench-package deny advisories clean-venv python pytest pytest-torch pytest-other pytest-free-threaded wheel test-wheel test-first-hour release

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The demo of a ring that changes belongs to the tests.
demo: PACKAGES = -p larder-cli -p larder-node $(if $(filter --cluster,$(DEMO_ARGS)),-p larder-tests)
demo: DEMO = $(if $(filter --cluster,$(DEMO_ARGS)),larder-cluster-demo,larder demo)
demo: ## start two nodes on loopback over a folder of images, run three shuffled epochs, verify every byte (DEMO_ARGS=--cluster: a ring that changes)
	@$(CARGO) build --locked $(PACKAGES)
	@$(BUILD)/debug/$(DEMO) $(DEMO_ARGS)

sim: ## simulate clusters of agents from SEEDS seeds (10000), then look for every planted bug
	@$(CARGO) run --locked -q -p larder-sim -- --seeds $(SEEDS)

test: check $(READY) $(ETCD) ## everything a change must pass: format, lints, tidy, unit and process tests
	$(MAKE) pytest
	$(TEST_ENV) $(call run-tests)
	$(run-doctests)

# One process test of each area.
QUICK_TESTS := cli::sample_written_by_the_tool client_deaths:: coordinator:: replicas::node_death_causes_no_origin_read_in_embedded deploy:: docs:: \
	faults::each_fault first_light::each_epoch host_node::eight_processes membership::members_join_and_leave_in_embedded \
	node_deaths::node_killed operating::operators_remove_nodes_in_embedded operator::

test-quick: python $(ETCD) ## a first answer in three minutes: format, tidy, unit tests, 300 simulated clusters, one process test of each area
	$(CARGO) fmt --all --check
	LARDER_TEST_SEEDS=300 $(TEST_ENV) $(call run-tests,--lib --bins --test tidy --test seeds)
	$(TEST_ENV) $(call run-tests,--test it -- $(QUICK_TESTS))

FULL_TESTS := --test it --test device --test memory --test seeds

test-full: test test-wheel test-first-hour deny $(GARAGE) ## also the slow tests: schemas, 50,000 faulty fills, 10,000 killed clients, both coordinators at full scale, torch, other Pythons, garage, a newcomer's first hour
	LARDER_TEST_FULL=1 $(MAKE) pytest
	LARDER_TEST_FULL=1 $(MAKE) pytest-torch
	@for python in python3.12 python3.13 python3.14; do \
		if $$python -c "" 2>/dev/null; then $(MAKE) pytest-other OTHER_PYTHON=$$python || exit; \
		else echo "NOT TESTED on $$python, which is not here"; fi; done
	@if $(FREE_THREADED_PYTHON) -c "" 2>/dev/null; then $(MAKE) pytest-free-threaded; \
		else echo "NOT TESTED without a GIL: $(FREE_THREADED_PYTHON) is not here"; fi
	LARDER_TEST_FULL=1 LARDER_GARAGE=$(abspath $(GARAGE)) $(TEST_ENV) $(call run-tests,--features larder-tests/schema $(FULL_TESTS))

python: $(READY) ## the Python package, built and importable in target/venv
	$(CARGO) build --locked -p larder-python -p larder-node -p larder-origin -p larder-cli -p larder-tests -p larder-cuda-standin
	ln -sf $(abspath $(BUILD)/debug/lib_larder.so) client/python/python/larder/_larder.abi3.so
	@$(PY) -c "import sysconfig; open(sysconfig.get_path('purelib') + '/larder.pth', 'w').write('$(abspath client/python/python)\n')"

PYTEST_ENV = LARDER_TEST_BINARIES=$(abspath $(BUILD)/debug) LARDER_ETCD_SERVER=$(abspath $(ETCD))

pytest: python ## the tests of the Python package
	cd client/python && $(PYTEST_ENV) $(abspath $(PY)) -m pytest $(PYTEST_ARGS)

pytest-torch: python $(TORCH_READY) ## its tests with torch and Lightning, in a virtual environment of 6 GB
	cd client/python && $(PYTEST_ENV) PYTHONPATH=$(abspath client/python/python) $(abspath $(TORCH_PY)) -m pytest tests/with_torch $(PYTEST_ARGS)

pytest-other: python ## the tests of the Python package on another Python (OTHER_PYTHON=/path/to/python3.13)
	$(OTHER_PYTHON) -m venv $(OTHER_VENV)
	$(OTHER_PY) -m pip install --quiet --disable-pip-version-check --prefer-binary -r tests/python/requirements-any.txt grain
	$(OTHER_PY) -m pip install --quiet --disable-pip-version-check --no-deps $(PHOTOGRAPHS)
	cd client/python && $(PYTEST_ENV) PYTHONPATH=$(abspath client/python/python) $(abspath $(OTHER_PY)) -m pytest -rs $(PYTEST_ARGS)

# It has no stable ABI in common with other Pythons, so its module is built apart and lies beside theirs.
FREE_THREADED_TARGET := target/free-threaded

pytest-free-threaded: python $(FREE_THREADED_READY) ## the tests of the Python package without a GIL (FREE_THREADED_PYTHON=/path/to/python3.14t)
	PYO3_PYTHON=$(abspath $(FREE_THREADED_PY)) CARGO_TARGET_DIR=$(FREE_THREADED_TARGET) $(CARGO) build --locked -p larder-python
	ln -sf $(abspath $(FREE_THREADED_TARGET)/debug/lib_larder.so) client/python/python/larder/_larder$$($(FREE_THREADED_PY) -c \
		"import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))")
	cd client/python && $(PYTEST_ENV) PYTHONPATH=$(abspath client/python/python) $(abspath $(FREE_THREADED_PY)) -m pytest -rs $(PYTEST_ARGS)

# The programs lie in the package only while the wheel is built: in a checkout they would soon be those of yesterday.
PROGRAMS := client/python/python/larder/bin

INTERPRETER = $(abspath $(PY))

wheel: $(READY) ## the Python package as users install it, with the programs, in target/wheel (INTERPRETER=/path/to/python3.14t: without a GIL)
	$(CARGO) build --locked --release -p larder-node -p larder-cli
	rm -rf target/wheel $(PROGRAMS) && mkdir -p $(PROGRAMS)
	for program in larder larder-node; do strip -o $(PROGRAMS)/$$program $(BUILD)/release/$$program; done
	cd client/python && $(abspath $(PY)) -m maturin build --locked --release --strip --quiet \
		--interpreter $(INTERPRETER) --out $(abspath target/wheel); status=$$?; \
		rm -rf $(abspath $(PROGRAMS)); exit $$status
	@ls -l target/wheel

test-wheel: wheel ## install the wheel where there is no Rust, and run the README's lines
	$(CARGO) build --locked -p larder-origin --bins
	cd client/python && $(PYTEST_ENV) $(abspath $(PY)) -m pytest wheel/test_wheel.py $(PYTEST_ARGS)

test-first-hour: wheel $(TORCH_READY) $(BARE_ROOT) ## a newcomer's first hour with the wheel, an empty root, an S3 server, torch and small clusters
	$(CARGO) build --locked -p larder-origin --bins
	cd client/python && $(PYTEST_ENV) $(abspath $(PY)) -m pytest wheel/test_install.py wheel/test_first_hour.py $(PYTEST_ARGS)

# aarch64 is not tried yet: it needs Rust's target aarch64-unknown-linux-gnu, and a machine to run the files on.
ARCHITECTURES := x86_64
RELEASE_FILES := target/release-files

release: $(READY) $(RELEASE_READY) $(BARE_ROOT) ## the files of a release for glibc 2.28, in target/release-files, each checked in an empty root
	$(RELEASE_PY) client/python/wheel/release.py $(ARCHITECTURES)
	$(RELEASE_PY) -m twine check --strict $(RELEASE_FILES)/larder_cache-*
	$(CARGO) build --locked -p larder-origin --bins
	cd client/python && LARDER_TEST_WHEELS=$(RELEASE_FILES) $(PYTEST_ENV) $(abspath $(PY)) -m pytest \
		wheel/test_release.py wheel/test_install.py wheel/test_wheel.py $(PYTEST_ARGS)
	@ls -l $(RELEASE_FILES)
	@echo "Nothing is uploaded. CONTRIBUTING.md has the steps of a release, and its last ones are:"
	@echo "  twine upload $(RELEASE_FILES)/larder_cache-*"
	@echo "  git tag v$$($(PY) -c "import tomllib; print(tomllib.load(open('Cargo.toml', 'rb'))['workspace']['package']['version'])")"

# The package and the examples, by the package's rules.
LINTED := --config pyproject.toml . ../../examples

check: $(READY) ## format, lints and types, no tests
	$(CARGO) fmt --all --check
	cd client/python && $(abspath $(PY)) -m ruff format --check --quiet $(LINTED)
	cd client/python && $(abspath $(PY)) -m ruff check --quiet $(LINTED)
	cd client/python && $(abspath $(PY)) -m mypy
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

fmt: $(READY) ## format
	$(CARGO) fmt --all
	cd client/python && $(abspath $(PY)) -m ruff format --quiet $(LINTED)

bench: ## figures as ratios to a baseline of the same run: a table, and JSON under target/bench
	$(CARGO) build --locked --release -p larder-node -p larder-benches
	$(BUILD)/release/larder-benches --out target/bench $(BENCH_ARGS)

bench-larger: ## data larger than memory against the tests' S3 server: requests and bytes, counted
	$(CARGO) build --locked --release -p larder-node -p larder-cli -p larder-benches
	$(BUILD)/release/larder-benches --only larger --out target/bench-larger $(BENCH_ARGS)

bench-cold: $(GARAGE) ## cold epochs over garage, a real S3 server, beside plain GETs (builds garage: about 15 minutes)
	$(CARGO) build --locked --release -p larder-node -p larder-benches
	LARDER_GARAGE=$(abspath $(GARAGE)) $(BUILD)/release/larder-benches --only cold --out target/bench-cold $(BENCH_ARGS)

# A package of its own, so that what is measured is the release build whatever `make python` left in the checkout.
BENCH_PACKAGE := target/bench/package

bench-package:
	$(CARGO) build --locked --release -p larder-python -p larder-node
	rm -rf $(BENCH_PACKAGE) && mkdir -p $(BENCH_PACKAGE)/larder
	cp client/python/python/larder/*.py $(BENCH_PACKAGE)/larder
	ln -s $(abspath $(BUILD)/release/lib_larder.so) $(BENCH_PACKAGE)/larder/_larder.abi3.so

MEASURED := PYTHONPATH=$(abspath $(BENCH_PACKAGE)) LARDER_NODE_BIN=$(abspath $(BUILD)/release/larder-node)

bench-python: $(BENCH_READY) bench-package ## the Python loader beside torch's DataLoader: a table, and target/bench/python.json (needs torch, 4 GB of disk)
	$(MEASURED) $(abspath $(TORCH_PY)) benches/python/run.py $(BENCH_ARGS)

bench-peers: $(PEERS_READY) $(GARAGE) bench-package ## the Python loader beside those of others over garage: tables, and target/bench/peers.json (needs torch, 20 GB of disk)
	$(MEASURED) LARDER_GARAGE=$(abspath $(GARAGE)) $(abspath $(PEERS_PY)) benches/python/run_peers.py $(BENCH_ARGS)

bench-formats: $(PEERS_READY) $(GARAGE) bench-package ## tars and Parquet beside the tools that people read them with: tables, and target/bench/formats.json (needs torch, 40 GB of disk)
	$(CARGO) build --locked --release -p larder-cli
	$(MEASURED) LARDER_CLI=$(abspath $(BUILD)/release/larder) LARDER_GARAGE=$(abspath $(GARAGE)) \
		$(abspath $(PEERS_PY)) benches/python/run_formats.py $(BENCH_ARGS)

deny: $(CARGO_DENY) ## licences, banned crates, sources (installs cargo-deny when missing: about two minutes)
	$(CARGO_DENY) --all-features check bans licenses sources

# Not part of `deny`: it clones the RustSec database, so it needs that network and its answer changes from day to day.
advisories: $(CARGO_DENY) ## known vulnerabilities of the crates that are used
	$(CARGO_DENY) --all-features check advisories

# Unoptimised: it runs for seconds and would compile for many minutes.
$(TOOLS)/cargo-deny:
	$(CARGO) install --locked --debug --root target/tools cargo-deny

# Only the files of its two photographs are read, so the packages that it needs are left out.
PHOTOGRAPHS := scikit-learn==1.9.1

$(READY): tests/python/requirements.txt
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r $<
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps $(PHOTOGRAPHS)
	@touch $@

# An etcd to test against: Debian's, unpacked into target/tools and not installed, so that nobody need be root. The lists
# of packages are this folder's own, as the system's may be missing or old.
ETCD_HOME := target/tools/etcd
APT := apt-get -qq -o Dir::State=$(abspath $(ETCD_HOME))/state -o Dir::Cache=$(abspath $(ETCD_HOME))/cache \
	-o Dir::State::status=/var/lib/dpkg/status -o APT::Sandbox::User=$(shell id -un)

$(TOOLS)/etcd:
	@command -v apt-get >/dev/null || { echo "put etcd 3.4 or later on the PATH, or name it in LARDER_ETCD_SERVER" >&2; false; }
	rm -rf $(ETCD_HOME) && mkdir -p $(ETCD_HOME)/state/lists/partial $(ETCD_HOME)/cache/archives/partial $(TOOLS)
	$(APT) update
	cd $(ETCD_HOME) && $(APT) download etcd-server && dpkg -x etcd-server_*.deb .
	ln -sf $(abspath $(ETCD_HOME))/usr/bin/etcd $@

# A root with Python and the libraries that it and numpy need, but no shell and no compiler: Debian's packages, unpacked.
BARE_PACKAGES := target/bare-packages
BARE_APT := apt-get -qq -o Dir::State=$(abspath $(BARE_PACKAGES))/state -o Dir::Cache=$(abspath $(BARE_PACKAGES))/cache \
	-o Dir::State::status=$(abspath $(BARE_PACKAGES))/status -o APT::Sandbox::User=$(shell id -un)

$(BARE_ROOT):
	@command -v apt-get >/dev/null || { echo "the empty root is made of Debian's packages: run this on Debian or Ubuntu" >&2; false; }
	rm -rf $(BARE_PACKAGES) && mkdir -p $(BARE_PACKAGES)/state/lists/partial $(BARE_PACKAGES)/cache/archives/partial $(BARE_PACKAGES)/root
	touch $(BARE_PACKAGES)/status
	$(BARE_APT) update
	$(BARE_APT) install --yes --download-only --no-install-recommends python3-venv libstdc++6
	for package in $(BARE_PACKAGES)/cache/archives/*.deb; do dpkg -x $$package $(BARE_PACKAGES)/root || exit; done
	mv $(BARE_PACKAGES)/root $@

# An S3 server to test against, never linked. `make test` does without.
$(TOOLS)/garage:
	$(CARGO) install --locked --root target/tools garage@2.5.0

$(TORCH_READY): tests/python/requirements-torch.txt
	python3 -m venv $(TORCH_VENV)
	$(TORCH_PY) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(RELEASE_READY): tests/python/requirements-release.txt
	python3 -m venv $(RELEASE_VENV)
	$(RELEASE_PY) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# safetensors has no wheel for it, and is built.
$(FREE_THREADED_READY): tests/python/requirements-any.txt
	$(FREE_THREADED_PYTHON) -c "import sys; sys.exit(sys._is_gil_enabled())"
	$(FREE_THREADED_PYTHON) -m venv $(FREE_THREADED_VENV)
	$(FREE_THREADED_PY) -m pip install --quiet --disable-pip-version-check --prefer-binary -r $<
	$(FREE_THREADED_PY) -m pip install --quiet --disable-pip-version-check --no-deps $(PHOTOGRAPHS)
	@touch $@

$(BENCH_READY): benches/python/requirements.txt $(TORCH_READY)
	$(TORCH_PY) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# It sees the torch of the other environment, which would be 5 GB more.
$(PEERS_READY): benches/python/peers/requirements.txt $(TORCH_READY)
	python3 -m venv $(PEERS_VENV)
	$(TORCH_PY) -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> $$($(PEERS_PY) -c "import sysconfig; print(sysconfig.get_path('purelib'))")/torch.pth
	$(PEERS_PY) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

clean-venv:
	rm -rf target/venv target/venv-*
