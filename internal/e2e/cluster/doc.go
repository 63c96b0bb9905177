// Package cluster makes clusters of real processes for tests of failures: each node a process on a host of its own, as
// far as this machine can pretend that.
//
// A host is a network namespace where the tests may make some (root, and `ip`), all of them on one bridge, or else an
// address of 127.0.0.0/8 behind a proxy. Either way links between two hosts can be cut, in one direction too, and healed;
// the proxies can delay as well, namespaces where the kernel has netem. Start says which it is. Processes are killed,
// stopped and continued by their process id; a data directory may be a small file system of its own.
//
// Bank is the load: clients that move money, remember what they were told, and hold the cluster to it, row by row.
//
// It owns its processes, namespaces and mounts, and takes all of them away when the test ends, also when it fails; what a
// test that was killed left behind goes when the next one starts. It knows nodes only as an operator does. It waits for
// conditions, never for a time.
//
// Read next: cluster.go, then network.go with namespaces.go and proxy.go, and bank.go.
package cluster
