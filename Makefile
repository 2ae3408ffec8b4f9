# make up       build, start a file system on ./strake-data, mount it at ./mnt, and show it working
# make down     stop it; the files stay
# make test     everything that CI runs (needs root for mounts and network namespaces)
# make check    the same
# make soak     half an hour of killed servers, cut networks and full disks under load, with a ledger
# make fsx      1,000,000 operations of fsx on each of three files, without and with --writeback
# make install  the program to PREFIX/bin, and the helper of `mount -t strake`

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
SBIN ?= /sbin
DATA ?= ./strake-data
MOUNT ?= ./mnt
DEMO_MIB ?= 512
STRAKE := ./target/release/strake

# need COMMAND PACKAGE...: installs what is missing, where that is allowed. With a C compiler in the
# list because rustc links with it.
define NEED
need() {
  command -v "$$1" >/dev/null && return 0
  echo "make: $$1 is missing (Debian package $$2)"
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -qq -y --no-install-recommends "$$2" >/dev/null 2>&1 || {
      apt-get update -qq && apt-get install -qq -y --no-install-recommends "$$2" >/dev/null
    }
  else
    echo "make: install it first: sudo apt-get install $$2" >&2
    exit 1
  fi
}
need_cargo() {
  command -v cargo >/dev/null || [ ! -x "$$HOME/.cargo/bin/cargo" ] || export PATH="$$HOME/.cargo/bin:$$PATH"
  command -v cargo >/dev/null || {
    echo "make: no Rust toolchain: see https://rustup.rs" >&2
    exit 1
  }
  need cc gcc
}
# Tests look at pages with it; without it they say so.
need_chromium() {
  local name
  for name in chromium chromium-shell google-chrome chromium-headless-shell; do
    command -v "$$name" >/dev/null && return 0
  done
  [ "$$(id -u)" != 0 ] || need chromium-headless-shell chromium-headless-shell
}
# The tests of the engine on PostgreSQL start a server of their own; its programs are not in PATH.
need_postgres() {
  local found
  for found in /usr/lib/postgresql/*/bin/initdb; do
    [ ! -x "$$found" ] || return 0
  done
  need initdb postgresql
}
# Those of the engine on etcd do the same.
need_etcd() {
  [ -x /usr/bin/etcd ] || need etcd etcd-server
  need etcdctl etcd-client
}
need_fuse() {
  [ -e /dev/fuse ] || modprobe fuse 2>/dev/null || { [ "$$(id -u)" != 0 ] || mknod /dev/fuse c 10 229; }
  [ -e /dev/fuse ] || { echo "make: /dev/fuse is missing: sudo modprobe fuse" >&2; exit 1; }
  # Root mounts by itself; others need the helper.
  [ "$$(id -u)" = 0 ] || need fusermount3 fuse3
}
endef

.PHONY: help up down build test check soak fsx install uninstall

help:
	@sed -n 's/^# \(make .*\)/  \1/p' Makefile

build:
	@$(NEED)
	need_cargo
	cargo build --release -p strake

up: build
	@$(NEED)
	need_fuse
	running() { grep -qs " $$(realpath -m $(MOUNT)) fuse.strake " /proc/mounts; }
	if running; then
	  echo "== a file system is mounted at $(MOUNT) already"
	else
	  echo "== strake up --detach --data $(DATA) --mount $(MOUNT)"
	  $(STRAKE) up --detach --data $(DATA) --mount $(MOUNT)
	fi
	demo=$(MOUNT)/demo
	if [ -e $$demo/SHA256SUMS ]; then
	  echo "== files of an earlier run are there; comparing them with their checksums"
	  (cd $$demo && sha256sum --quiet -c SHA256SUMS)
	  echo "all $$(wc -l < $$demo/SHA256SUMS) files are as they were"
	else
	  echo "== copying a tree of files"
	  mkdir -p $$demo/source
	  start=$$(date +%s%N)
	  cp -r crates docs tests Cargo.toml Makefile $$demo/source/
	  took=$$(( ($$(date +%s%N) - start) / 1000000 ))
	  echo "$$(find $$demo/source -type f | wc -l) files in $$took ms"
	  (cd $$demo && find source -type f -print0 | xargs -0 sha256sum > .SHA256SUMS && mv .SHA256SUMS SHA256SUMS)
	fi
	echo "== writing and reading a file of $(DEMO_MIB) MiB"
	large=$$demo/large
	rm -f $$large
	plain=$$(mktemp)
	trap 'rm -f "$$plain"' EXIT
	head -c $(DEMO_MIB)M /dev/urandom > "$$plain"
	rate() { LC_ALL=C dd "$$@" 2>&1 | sed -n 's/.*copied, /  /p'; }
	echo "written (with fsync): $$(rate if="$$plain" of=$$large bs=1M conv=fsync)"
	[ "$$(id -u)" != 0 ] || { sync; echo 3 > /proc/sys/vm/drop_caches; } 2>/dev/null || true
	echo "read:                 $$(rate if=$$large of=/dev/null bs=1M)"
	cmp "$$plain" $$large
	echo "== where it lies: strake layout get $$large"
	$(STRAKE) layout get $$large
	echo
	echo "The file system is mounted at $(MOUNT). Go on with:"
	echo "  ls -l $(MOUNT)/demo                      use it like any directory"
	echo "  $(STRAKE) status             how it is"
	echo "  $(STRAKE) layout set --stripe-width 2 $(MOUNT)/DIR"
	echo "  $(STRAKE) --help             every verb"
	echo "Stop it with: make down   (the files stay in $(DATA))"

down:
	@if [ -x $(STRAKE) ]; then
	  if [ -e $(DATA) ]; then $(STRAKE) down --data $(DATA); else echo "nothing runs on $(DATA)"; fi
	else
	  echo "nothing is built, so nothing runs"
	fi

test:
	@$(NEED)
	need_cargo
	need_fuse
	need ip iproute2
	need setfacl acl
	need setfattr attr
	need git git
	need_chromium
	need_postgres
	need_etcd
	cargo xtask ci

check: test

soak: build
	@$(NEED)
	need_cargo
	need_fuse
	need ip iproute2
	STRAKE_BIN=$$PWD/target/release/strake STRAKE_SOAK_SECONDS=$${SECONDS_TO_SOAK:-1800} \
	  cargo test -p strake-tests --test soak nothing_acknowledged -- --nocapture

fsx: build
	@$(NEED)
	need_cargo
	need_fuse
	# fsx unmaps nothing that it maps: so many operations need more mappings than a process usually may have.
	mappings=$$(sysctl -n vm.max_map_count)
	trap 'sysctl -q -w vm.max_map_count='"$$mappings" EXIT
	sysctl -q -w vm.max_map_count=4000000
	STRAKE_BIN=$$PWD/target/release/strake STRAKE_FSX_OPERATIONS=1000000 cargo test -p strake-tests --test suites fsx

install: build
	install -D -m 755 $(STRAKE) $(DESTDIR)$(PREFIX)/bin/strake
	install -d $(DESTDIR)$(SBIN)
	ln -sf $(PREFIX)/bin/strake $(DESTDIR)$(SBIN)/mount.strake
	ln -sf $(PREFIX)/bin/strake $(DESTDIR)$(SBIN)/mount.fuse.strake

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/strake $(DESTDIR)$(SBIN)/mount.strake $(DESTDIR)$(SBIN)/mount.fuse.strake
