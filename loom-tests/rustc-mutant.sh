#!/bin/sh
# The wrapper of rustc that run.sh links under the name of each mutant.
exec "$@" --cfg "rdma_conn_mutant=\"$(basename "$0")\""
