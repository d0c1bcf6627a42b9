# `make demo` and `make test` set up .venv first.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/
export OMP_WAIT_POLICY ?= PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.PHONY: setup setup-hashed browser demo test torture lint bench bom audit clean

setup: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt setup.py $(wildcard src/hadahash/native/*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --constraint constraints.txt --editable '.[train,onnx,offline,serve,milvus,bench,dev]'
	$(RUN)hadahash export lite0 --onnx
	$(RUN)python tools/bom.py --out $(VENV)/bom.cdx.json
	touch $@

# As setup, but every downloaded file must have a hash of constraints-hashes.txt.
setup-hashed:
	$(PYTHON) -m venv $(VENV)
	$(RUN)pip install --quiet --require-hashes --no-deps --requirement constraints-hashes.txt
	$(RUN)pip install --quiet --no-deps --no-build-isolation --editable .
	$(RUN)pip check
	$(RUN)hadahash export lite0 --onnx
	$(RUN)python tools/bom.py --out $(VENV)/bom.cdx.json
	touch $(VENV)/installed

# Bill of materials of what is installed (CycloneDX).
bom: setup
	$(RUN)python tools/bom.py --out bom.cdx.json

# Versions, hashes and licenses; with ADVISORIES=FILE (OSV records) known vulnerabilities too.
audit: setup
	$(RUN)python tools/audit.py $(if $(ADVISORIES),--advisories $(ADVISORIES))

demo: setup
	$(RUN)hadahash demo
	@echo "Without activating .venv: $(RUN)hadahash serve demo/photos.index"

# The tests of the page need a browser. Where it cannot be installed they are skipped, unless
# HADAHASH_REQUIRE_BROWSER=1.
browser:
	@command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq chromium) > /dev/null 2>&1 || test -z "$$HADAHASH_REQUIRE_BROWSER"

# All tests, and the examples in all docstrings.
test: setup browser lint
	$(RUN)python -m pytest --doctest-modules src
	$(RUN)python -m pytest

# The long tests: kills, full disks, damaged files, hostile clients, fuzzing. Each adds a row to
# bench/results/torture.jsonl. HADAHASH_TORTURE_SECONDS limits each of them; HADAHASH_TORTURE_SEED
# repeats a run. Each step runs even if an earlier one fails.
torture: setup
	@failed=0; \
	HADAHASH_TORTURE=1 $(RUN)python -m pytest --timeout 0 tests/torture tests/fuzz || failed=1; \
	HADAHASH_TORTURE=1 $(RUN)python -m pytest --timeout 0 -m torture --ignore tests/torture --ignore tests/fuzz || failed=1; \
	$(RUN)python bench/reliability.py || failed=1; \
	exit $$failed

lint: setup
	$(RUN)ruff check src tests bench examples tools
	$(RUN)ruff format --check src tests bench examples tools
	$(RUN)mypy

# Without options: what needs nothing but this machine. With all of these, every benchmark but those
# that docs/performance.md names:
#   PHOTOS=VOC2012/JPEGImages   photos
#   MODEL=runs/voc              a run with content bits
#   OTHER=other-photos          photos that the run was not trained on; IMAGEDEDUP=ded/bin/python: see
#                               bench/duplicates.py
#   OLD=old                     sources of version 0.1, with its library built: see bench/serve_million.py
#   DATA=data                   folder with CIFAR-10, for the demo
bench: setup
	$(RUN)python bench/evaluation.py
	$(RUN)python bench/search.py $(if $(OLD),--old $(OLD))
	$(RUN)python bench/ranking.py
	$(RUN)python bench/serve.py
	$(RUN)python bench/embeddings.py
	$(RUN)python bench/allocator.py
	$(RUN)python bench/scale.py --codes random --train $(if $(OLD),--old $(OLD))
	$(RUN)python bench/milvus.py
ifneq ($(and $(PHOTOS),$(MODEL)),)
	$(RUN)hadahash export $(MODEL) --onnx
	$(RUN)python bench/decode.py --photos $(PHOTOS) --model $(MODEL) --count 200
	$(RUN)python bench/overlap.py --photos $(PHOTOS) --model $(MODEL) $(if $(OLD),--old $(OLD))
	$(RUN)python bench/runtime.py --photos $(PHOTOS) --model $(MODEL) --int8
	$(if $(OTHER),$(RUN)python bench/duplicates.py $(MODEL) $(OTHER) $(if $(IMAGEDEDUP),--imagededup $(IMAGEDEDUP)))
endif
ifneq ($(OLD),)
	$(RUN)python bench/start.py --old $(OLD) --demo $(if $(DATA),--data-root $(DATA))
	$(RUN)python bench/serve_million.py --old $(OLD)
	$(RUN)python bench/serve_blocked.py --old $(OLD)
endif
	$(RUN)python bench/page.py

clean:
	rm -rf $(VENV) build demo *.egg-info src/*.egg-info
