//! Its test shows that misuse of `verbs-safe` does not compile: the programs in `tests/ui/`.
