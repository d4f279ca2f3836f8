# make test is the whole check, on a fresh machine too: it installs what is missing first.

.PHONY: test quick lint fuzz model bench test-servers test-ui e2e-tracing chaos soak mutants

test:
	internal/tools/install-redis.sh
	go vet ./...
	internal/tools/lint.sh
	LATCHKIT_REQUIRE_REDIS=1 LATCHKIT_REQUIRE_PROMTOOL=$(CI) go test -race ./...

# Without Redis the tests that need it are skipped.
quick:
	go test ./...

lint:
	internal/tools/lint.sh

# Each fuzz target for FUZZTIME. A plain go test runs their seeds only.
FUZZTIME ?= 30s
fuzz:
	internal/tools/fuzz.sh $(FUZZTIME)

# The packages that speak to Redis, on the Redis and Valkey of other Debian suites, which it unpacks into a cache folder.
test-servers:
	internal/tools/test-servers.sh

# Side by side with other libraries, on servers that it starts; a few minutes on a quiet machine. ONLY=one,many runs
# those scenarios alone. bench/results then holds the table, and what benchstat reads.
bench:
	internal/tools/install-redis.sh
	cd bench && go build -o results/bench . && results/bench -only "$(ONLY)" -rounds $(ROUNDS)
ROUNDS ?= 7
ONLY ?=

# The page of httplock.DebugHandler in a real Chromium, which it installs. Pictures of it are in httplock/_artifacts.
test-ui:
	internal/tools/install-chromium.sh
	LATCHKIT_UI=1 go test -count=1 -artifacts -outputdir httplock -run InABrowser ./httplock

# What examples/tracing exports, as Jaeger shows it. Building Jaeger takes minutes, the first time.
e2e-tracing:
	cd internal/tools/e2e-tracing && go run .

# What a RedLock can come to, explored: tens of millions of states, in some minutes and some GB. A plain go test explores
# the small models only.
model:
	go test ./internal/model -count=1 -v -timeout 1h -long

# Random faults for CHAOS, from SEED, and the table of what came of them.
CHAOS ?= 30m
SEED ?= 0
chaos:
	go test ./internal/chaos -run '^TestChaos$$' -timeout 0 -v -chaos.duration $(CHAOS) -chaos.seed $(SEED) -chaos.table chaos.md
	cat chaos.md

# 100,000 leases for SOAK, 10,000 waiters on one key, a million locks.
SOAK ?= 5m
soak:
	go test ./internal/load -timeout 0 -v -load.duration $(SOAK)

# Each broken variant must be caught.
mutants:
	go test ./internal/mutants -timeout 0 -v -mutants
