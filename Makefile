# What a person and CI run. `make run` and `make test` work on a fresh Debian 12 machine with Rust (rustup) and Go; what `make test` and
# `make cluster` do needs root.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export DEBIAN_FRONTEND := noninteractive

TARGET := $(or $(CARGO_TARGET_DIR),target)
PACKAGES := containerd runc containernetworking-plugins iproute2 nftables openssl gcc g++ libc6-dev procps python3 curl buildah ca-certificates prometheus
PROGRAMS := containerd runc /usr/lib/cni/bridge ip nft openssl gcc g++ sysctl python3 curl buildah update-ca-certificates promtool
CARGO_DENY := 0.20.2
# That of e2e/cluster.
HELM_VERSION := v4.3.1
HTTPWG := 0.2.5
GRPCIO := 1.85.3
AIOQUIC := 1.7.2

.PHONY: help run test deps check fmt clippy doc deny unit drift chart chart-update image image-of h2-conformance grpc-interop http3-interop page fuzz e2e cluster cluster-down bench bench-subject

help: ## Lists these targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

run: ## The quickstart: two demo backends and a gateway that reads its objects from files
	cargo build --locked --bin lockgate
	@exec manifests/examples/quickstart.sh $(TARGET)/debug/lockgate

test: deps ## Everything CI checks, in the order of what fails soonest
	$(MAKE) check
	$(MAKE) unit
	$(MAKE) drift
	$(MAKE) h2-conformance
	$(MAKE) fuzz
	$(MAKE) e2e

check: fmt clippy doc deny

fmt:
	cargo fmt --all --check

clippy:
	cargo clippy --locked --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps

# The database of advisories is a repository of its own, and an advisory of today must not fail the code of yesterday: it is shown only.
deny:
	cargo deny --locked check bans licenses sources
	cargo deny --locked check advisories || echo 'cargo deny: advisories are open, or their database is out of reach (not an error)'

unit: ## Tests that need no cluster
	cargo test --locked --workspace --exclude lockgate-e2e

drift: chart ## crds/ is what the code says, manifests/install.yaml what the chart says
	cargo build --locked --bin lockgate
	diff -u <(cat crds/*.yaml) <($(TARGET)/debug/lockgate crds | grep -vxe ---) || { echo 'crds/ is not what `lockgate crds` prints' >&2; exit 1; }

HELM := $(abspath $(TARGET))/tools/helm-$(HELM_VERSION)/helm

$(HELM):
	GOBIN=$(dir $@) CGO_ENABLED=0 nice go install -trimpath helm.sh/helm/v4/cmd/helm@$(HELM_VERSION)

chart: deps $(HELM) ## The Helm chart: lint, renderings against golden files, what it refuses, its copies
	charts/check $(HELM)

chart-update: $(HELM) ## Makes anew what is made of the chart, the settings and crds/
	UPDATE_CHART=1 cargo test --locked -p lockgate --lib settings::tests::chart
	charts/check $(HELM) update

# docs/install.md tells how to build it with other programs.
ARCH := amd64
IMAGE := ghcr.io/lockgate/lockgate:$(shell sed -n '/^appVersion: /s///p' charts/lockgate/Chart.yaml)
IMAGE_DIR := $(abspath $(TARGET))/image
ARCHIVE := $(IMAGE_DIR)/lockgate-$(ARCH).tar
IMAGE_MEGABYTES := 25
RUST_TARGET := $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-unknown-linux-gnu
STRIP := $(if $(filter arm64,$(ARCH)),aarch64-linux-gnu-)strip
BUILDAH := buildah --storage-driver vfs --root $(IMAGE_DIR)/storage --runroot $(IMAGE_DIR)/run
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER ?= aarch64-linux-gnu-gcc

image: deps ## The image (ARCH=amd64 or arm64, IMAGE=NAME:TAG) as an archive in target/image
	RUSTFLAGS='-C target-feature=+crt-static' nice cargo build --locked --profile dist --target $(RUST_TARGET) --bin lockgate
	$(MAKE) image-of BINARY=$(TARGET)/$(RUST_TARGET)/dist/lockgate

image-of:
	@mkdir -p $(IMAGE_DIR)/context/$(ARCH)
	$(STRIP) -o $(IMAGE_DIR)/context/$(ARCH)/lockgate $(BINARY)
	cp /etc/ssl/certs/ca-certificates.crt $(IMAGE_DIR)/context/
	echo 'hosts: files dns' > $(IMAGE_DIR)/context/nsswitch.conf
	$(BUILDAH) build --quiet --isolation chroot --layers=false --timestamp 0 --platform linux/$(ARCH) --tag $(IMAGE) --file Dockerfile $(IMAGE_DIR)/context > /dev/null
	@rm -f $(ARCHIVE)
	$(BUILDAH) push --quiet $(IMAGE) docker-archive:$(ARCHIVE):$(IMAGE)
	@rm -rf $(IMAGE_DIR)/storage $(IMAGE_DIR)/run
	@size=$$(stat -c %s $(ARCHIVE)); echo "$(ARCHIVE): $$((size / 1000000)) MB"; \
	[ $$size -le $(IMAGE_MEGABYTES)000000 ] || { echo 'more than $(IMAGE_MEGABYTES) MB' >&2; exit 1; }

# The tests use io_uring, which some containers forbid.
HTTPWG_BIN := $(abspath $(TARGET))/tools/bin/httpwg

h2-conformance: deps ## The HTTP/2 tests of httpwg against the gateway; docs/http2.md
	cargo build --locked --bin lockgate
	@[ -x $(HTTPWG_BIN) ] || nice cargo install --quiet --locked httpwg-cli@$(HTTPWG) --root $(abspath $(TARGET))/tools --target-dir $(abspath $(TARGET))/tools/build
	e2e/conformance/http2 $(TARGET)/debug/lockgate $(HTTPWG_BIN)

GRPC_VENV := $(abspath $(TARGET))/tools/grpcio-$(GRPCIO)

grpc-interop: ## Cases of gRPC's interop tests with grpcio through the gateway; docs/grpc.md. No part of `make test`
	cargo build --locked --bin lockgate
	@$(GRPC_VENV)/bin/python3 -c 'import grpc' 2> /dev/null || { python3 -m venv $(GRPC_VENV); $(GRPC_VENV)/bin/pip install -q grpcio==$(GRPCIO); }
	e2e/conformance/grpc $(TARGET)/debug/lockgate $(GRPC_VENV)/bin/python3

QUIC_VENV := $(abspath $(TARGET))/tools/aioquic-$(AIOQUIC)

http3-interop: ## Requests of aioquic over HTTP/3 through the gateway; docs/http3.md. No part of `make test`
	cargo build --locked --bin lockgate
	@$(QUIC_VENV)/bin/python3 -c 'import aioquic' 2> /dev/null || { python3 -m venv $(QUIC_VENV); $(QUIC_VENV)/bin/pip install -q aioquic==$(AIOQUIC); }
	e2e/conformance/http3 $(TARGET)/debug/lockgate $(QUIC_VENV)/bin/python3

# A browser is some 100 MB of packages, and two minutes.
page: ## The status page in a headless Chromium, and its screenshots in docs/images. No part of `make test`
	cargo build --locked --bin lockgate
	@missing=; for program in chromium pngquant; do command -v $$program > /dev/null || missing+=" $$program"; done; \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing fonts-dejavu-core; fi
	e2e/page/check $(TARGET)/debug/lockgate chromium docs/images

# The flags are those of `cargo fuzz run --sanitizer none`; without a sanitizer a stable compiler will do. With nightly and cargo-fuzz
# `cargo fuzz run TARGET` works too.
FUZZ_TARGETS := path table objects heads proxy_header
FUZZ_SECONDS := 20
FUZZ_DIR := $(abspath $(TARGET))/fuzz
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table

fuzz: deps ## Fuzz targets, FUZZ_SECONDS=20 each; what makes one fail is kept in target/fuzz/artifacts
	RUSTFLAGS='$(FUZZ_FLAGS)' cargo build --locked --release --manifest-path fuzz/Cargo.toml --target $$(rustc --print host-tuple) --target-dir $(FUZZ_DIR)
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ_DIR)/corpus/$$target $(FUZZ_DIR)/artifacts; \
		log=$(FUZZ_DIR)/$$target.log; \
		if ! $(FUZZ_DIR)/$$(rustc --print host-tuple)/release/$$target -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
			-artifact_prefix=$(FUZZ_DIR)/artifacts/$$target- $(FUZZ_DIR)/corpus/$$target $$(ls -d fuzz/seeds/$$target 2> /dev/null) > $$log 2>&1; then \
			tail -40 $$log >&2; exit 1; \
		fi; \
		echo "$$target: $$(grep -a '^Done' $$log)"; \
	done

e2e: deps ## Tests on a real cluster (ARGS='name' for some of them)
	e2e/run test $(ARGS)

cluster: deps ## A real cluster with the gateway in it, to play with
	e2e/run up
	@cat e2e/cluster/try.txt

cluster-down: ## Ends that cluster
	e2e/run down

deps: ## Installs what the above need
	@missing=; for program in $(PROGRAMS); do PATH=$$PATH:/usr/sbin:/sbin command -v $$program > /dev/null || missing+=" $$program"; done; \
	if [ -n "$$missing" ]; then echo "installing:$$missing"; apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES); fi
	@cargo fmt --version > /dev/null 2>&1 && cargo clippy --version > /dev/null 2>&1 || rustup component add rustfmt clippy
	@cargo deny --version > /dev/null 2>&1 || nice cargo install --locked cargo-deny@$(CARGO_DENY)

bench: ## Benchmarks of the routing table and the compiler
	cargo bench --locked -p lockgate-benches

bench-subject: ## Prints how a side-by-side benchmark starts the gateway, with {placeholders}; docs/benchmarks.md
	@cargo build --quiet --locked --release --bin lockgate
	@echo "lockgate=env LOCKGATE=$(abspath $(TARGET))/release/lockgate $(abspath benches/subject) {http} {https} {cert} {key} {b1} {b2} {run} {routes}"
