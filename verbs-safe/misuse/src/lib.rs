//! Its test shows that misuse of `verbs-safe` does not compile: the programs in `tests/ui/`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
