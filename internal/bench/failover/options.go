package failover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/internal/options"
)

// mostNodes is how many data nodes a cluster may have.
const mostNodes = 8

// kinds are what can be done to a cluster, in the order in which it is done.
var kinds = []string{"control", "kill", "hang", "cut", "stop"}

// choices are what the command line asks for.
type choices struct {
	nodes    []int // numbers of data nodes
	kinds    []string
	repeat   int
	rate     int // operations a second
	rows     int
	set      string // further parameters of the data nodes, one a line
	json     string // file; empty: none
	loopback bool
	keep     string // folder for logs; empty: a temporary one
}

func parse(args []string) (*choices, *options.Set, error) {
	c := &choices{nodes: []int{2, 4}, kinds: kinds, repeat: 20, rate: 2000, rows: 10000}
	s := options.New("[options]", `Kills, stops and cuts off data nodes of a cluster on this machine, and prints what a client that asks for a fixed number of
single-row updates and reads a second notices of it. For nodes that are cut off it needs root and the command ip.`)
	s.Func("data-nodes", "N,…", "sizes of the clusters, with two replicas (default: 2,4)", func(text string) error {
		c.nodes = nil
		for _, word := range strings.Split(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 2 || n > mostNodes || n%2 != 0 {
				return fmt.Errorf("%q is not 2, 4, 6 or 8", word)
			}
			c.nodes = append(c.nodes, n)
		}
		return nil
	})
	s.Func("kinds", "KIND,…", "what is done: "+strings.Join(kinds, ", ")+" (default: all)", func(text string) error {
		c.kinds = nil
		for _, word := range strings.Split(text, ",") {
			if !slices.Contains(kinds, word) {
				return fmt.Errorf("there is no kind %q: there are %s", word, strings.Join(kinds, ", "))
			}
			c.kinds = append(c.kinds, word)
		}
		return nil
	})
	s.Int(&c.repeat, "repeat", "N", "rounds of each kind (default: 20)", 1, 1000)
	s.Int(&c.rate, "rate", "N", "operations a second, half of them updates (default: 2000)", 10, 100000)
	s.Int(&c.rows, "rows", "N", "rows (default: 10000)", 1000, 10000000)
	s.Func("set", "NAME=VALUE", "a parameter of the data nodes; may be given several times", func(text string) error {
		if !strings.Contains(text, "=") || strings.ContainsAny(text, "\r\n[") {
			return fmt.Errorf("%q is not NAME=VALUE", text)
		}
		c.set += text + "\n"
		return nil
	})
	s.String(&c.json, "json", "FILE", "write the figures to this file too")
	s.Bool(&c.loopback, "loopback", "do without network namespaces, and without the kind cut")
	s.String(&c.keep, "keep", "DIR", "keep the logs of all processes in this folder")
	s.Example("cohort bench failover")
	s.Example("cohort bench failover --data-nodes 2 --kinds control,kill --repeat 3 --json figures.json")
	rest, err := s.Parse(args)
	if err == nil {
		err = options.NoArguments(rest)
	}
	return c, s, err
}
