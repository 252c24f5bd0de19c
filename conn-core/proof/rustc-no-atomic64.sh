#!/bin/sh
# The wrapper of rustc that run.sh gives to cargo.
exec "$@" --cfg rdma_conn_no_atomic64
