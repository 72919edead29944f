#!/bin/sh
# Ray Serve 2.60.0 binds HAProxy's statistics page to all interfaces, whatever host is asked
# for. This stands in for the binary (RAY_SERVE_HAPROXY_BINARY_PATH): it puts such lines of the
# generated configuration on loopback, then becomes HAProxy.
set -eu
previous=
for argument in "$@"; do
    if [ "$previous" = -f ] && [ -f "$argument" ]; then
        sed -i 's/^\( *bind \)\*\{0,1\}:/\1127.0.0.1:/' "$argument"
    fi
    previous=$argument
done
exec "$LONGMEM_HAPROXY" "$@"
