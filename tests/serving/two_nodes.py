"""A Ray cluster of two nodes on this machine, in a process of its own: each has memory for one
replica, and as many CPUs as the second argument says. Prints the head's address; a line on stdin
removes the second node, the end of stdin ends the cluster."""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    """Runs until stdin ends."""
    node = {"num_cpus": int(sys.argv[2]), "memory": 5 << 30, "node_ip_address": "127.0.0.1"}
    head = {**node, "include_dashboard": False, "temp_dir": sys.argv[1]}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(**node)
    print(cluster.address, flush=True)
    if sys.stdin.readline():
        cluster.remove_node(second, allow_graceful=False)
        print("removed", flush=True)
        sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
