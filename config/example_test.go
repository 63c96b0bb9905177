package config_test

import (
	"fmt"

	"github.com/cohortdb/cohort/config"
)

// A configuration in the my.cnf form, its hosts mapped to this machine.
func ExampleParse() {
	data := []byte("[cluster_config]\nndb_mgmd=n1\nndbd=n2,n3\nmysqld=,\nDataMemory=2000M\nDiskless=1\nTimeBetweenEpochs=200\n")
	c, warnings, err := config.Parse(data, config.Options{
		FileName:  "my.cnf",
		MyCnf:     true,
		HostMap:   map[string]string{"n1": "127.0.0.1", "n2": "127.0.0.1", "n3": "127.0.0.1"},
		Overrides: []config.Setting{{Name: "DataMemory", Value: "100M"}},
	})
	if err != nil {
		fmt.Println(err) // one line for each error of the file
		return
	}
	for _, w := range warnings {
		fmt.Println(w)
	}
	for _, n := range c.DataNodes() {
		fmt.Println(n.ID, n.HostName, n.NodeGroup, n.DataMemory(), n.Int("TimeBetweenEpochs"))
	}
	fmt.Println(c.Replicas(), c.NodeGroups(), c.Link(1, 50).Int("SendBufferMemory"))
	// Output:
	// 1 127.0.0.1 0 104857600 200
	// 2 127.0.0.1 0 104857600 200
	// 2 [[1 2]] 2097152
}

func ExampleDiff() {
	parse := func(text string) *config.Config {
		c, _, err := config.Parse([]byte("[mgm]\n[db]\nNoOfReplicas=1\n"+text), config.Options{})
		if err != nil {
			panic(err)
		}
		return c
	}
	for _, change := range config.Diff(parse("DataMemory=1G"), parse("DataMemory=2G\nMaxNoOfExecutionThreads=4")) {
		fmt.Println(change)
	}
	// Output:
	// [NDBD] 1 DataMemory: 1G -> 2G (needs node restart)
	// [NDBD] 1 MaxNoOfExecutionThreads: 0 -> 4 (needs initial system restart)
}

func ExampleParseConnectString() {
	c, err := config.ParseConnectString("nodeid=5,mgm1,mgm2:1200")
	fmt.Println(c.NodeID, c.Servers, err)
	// Output: 5 [mgm1:1186 mgm2:1200] <nil>
}
