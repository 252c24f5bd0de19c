//! Loom models of what the threads of a connection share: every interleaving, and
//! every value that the memory model lets a load return.
//!
//! The models are in `tests/`, and are empty unless built with
//! `--cfg rdma_conn_loom`, which also switches conn-core's atomics to loom's. A model
//! that cannot fail proves nothing, so each ordering of conn-core that carries weight
//! has a mutant, chosen by the variable `RDMA_CONN_MUTANT`, that weakens it by one step;
//! `mutants.txt` lists them with the model that must fail. `loom-tests/run.sh` runs all
//! of it.
//!
//! The models fit in loom's limits by having few threads and few ids, chosen so that
//! all paths are taken: two ids in one leaf, two in different leaves, a drain that is
//! too small for what it finds.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
