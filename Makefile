# A thin front: each line is a command one can also type. CMAKE_ARGS goes to the configuration, JOBS to the builds.
JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
configure = cmake --preset release $(CMAKE_ARGS) --log-level=WARNING
build = cmake --build --preset release --parallel $(JOBS)

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: ## train a dense model and its Mixture-of-Depths twin on real text, compare them, write a report (DATA=path for your own text)
	@tools/setup build demo
	@$(configure)
	@$(build) --target isobath_program
	@tools/demo

test: ## build everything and run all tests
	@tools/setup build
	@$(configure)
	@$(build)
	@ctest --preset release --parallel $(JOBS)
	@tools/skipped_tests

bench: ## measure every op, and training steps, against the machine's own peak
	@tools/setup build
	@$(configure)
	@$(build) --target benchmarks isobath_program
	@tools/bench

format: ## lay out the sources as .clang-format says
	@tools/setup format
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r clang-format -i

clean: ## remove what was built (runs/ stays)
	rm -rf build

.PHONY: help demo test bench format clean
