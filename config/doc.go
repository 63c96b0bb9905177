// Package config holds what a Cohort cluster is told by its operator: the table of every configuration parameter,
// the parsers of the two forms in which NDB users write them (config.ini and the [cluster_config] groups of a
// my.cnf), the checks, and the Config that every process of a cluster works from.
//
// It owns the parameters' names, ranges, defaults, what a change of each one needs, and what Cohort does with it:
// used; accepted without effect for a stated reason (a Warning with file and line); or not supported (an Error).
//
// It never opens a file, resolves a name or reads a clock: Parse takes bytes, and the same bytes give the same
// Config everywhere. It never panics on what it is given; asking a Node for a parameter that does not exist is a
// programmer's error and is an assertion.
//
// Invariants of a Config that Parse or UnmarshalBinary returned: node ids are distinct and in order; every value
// lies in its parameter's range; there is a management server and a data node; every data node that has a node
// group shares it with exactly Replicas()-1 others; groups are numbered from 0 without a gap. A Config prints
// itself as a config.ini (Text) and as bytes (MarshalBinary), and both read back to an equal Config.
//
// Read next: table.go (what a parameter is), parse.go (the way from bytes to a Config), config.go (the model).
package config
