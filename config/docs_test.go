package config

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const docsPath = "../docs/configuration.md"

const docsHead = `# Configuration

A cluster is described in one file, which only management servers read; every other node fetches its configuration
from them. There are two forms, and both may be given to ` + "`ndb_mgmd -f FILE`" + `.

**config.ini.** Sections ` + "`[SYSTEM]`, `[COMPUTER]`, `[NDB_MGMD]` (or `[MGM]`), `[NDBD]` (or `[DB]`), `[MYSQLD]` or `[API]`, `[TCP]`, `[SHM]`" + `,
one for each node or link, with ` + "`NAME=VALUE` or `NAME: VALUE`" + ` on a line. ` + "`[NDBD DEFAULT]`" + ` and its like hold what is common; a
node's own section wins over them, wherever they stand. A ` + "`#` or `;`" + ` at the beginning of a line or after a blank begins a
comment; a value that contains one stands in double quotes.

` + "```ini" + `
[NDBD DEFAULT]
NoOfReplicas=2
DataMemory=2G
[NDB_MGMD]
HostName=mgm1
[NDBD]
HostName=data1
[NDBD]
HostName=data2
[MYSQLD]
` + "```" + `

**my.cnf** (with ` + "`--mycnf`" + `). The group ` + "`[cluster_config]`" + ` lists the nodes by host, an empty entry being any host, and its
parameters go to every kind of section that has them; ` + "`[cluster_config.ndbd.2]`" + ` is about the second data node. Other
groups are left to other programs.

` + "```ini" + `
[cluster_config]
ndb_mgmd=mgm1
ndbd=data1,data2
mysqld=,,
DataMemory=2G
[cluster_config.ndbd.2]
DataDir=/data/two
` + "```" + `

Names and values may be in any case. Numbers may end in K, M or G, powers of 1024; a default may be written even where it
lies outside the range (it then stands for "computed"). Booleans are 1, Y, YES, TRUE, ON, or 0, N, NO, FALSE, OFF.

Nodes without NodeId get one: data nodes the lowest that is free from 1 (up to 144), then management servers, then API
nodes, from 49 (up to 255). Data nodes without Nodegroup form groups of NoOfReplicas nodes, from the lowest ids up.

A parameter that is unknown, out of its range, or asks for what Cohort cannot do is an error with file, line and what
to write; all errors of a file are shown together. One that is accepted without effect is a warning that says why.

**A change needs** what stands in that column before it works: a *node restart* is one of each node in turn (a rolling
restart), a *system restart* one of all together, *initial* one with ` + "`--initial`" + `, which clears the files of the node. Where a
parameter has no effect yet a change needs nothing, whatever the column says.
`

// docs writes the document from the table.
func docs() string {
	var b strings.Builder
	b.WriteString("<!-- Written by `go test ./config -run TestDocs -update`; change the table in package config, not this file. -->\n" + docsHead)
	titles := [sectionCount]string{
		"[SYSTEM]: the cluster", "[COMPUTER]: names for hosts", "[NDB_MGMD]: management servers", "[NDBD]: data nodes",
		"[API] and [MYSQLD]: clients", "[TCP]: links", "[SHM]: links through shared memory",
	}
	section := sectionCount
	for _, p := range Describe() {
		if p.Section != section {
			section = p.Section
			fmt.Fprintf(&b, "\n## %s\n\n| parameter | default | range | unit | a change needs | what Cohort does with it |\n| --- | --- | --- | --- | --- | --- |\n", titles[section])
		}
		name := p.Name
		for _, a := range p.Aliases {
			name += ", " + a
		}
		if p.Old {
			name += " (deprecated)"
		}
		what := "**Used:** " + p.Does
		switch p.Effect {
		case NoEffect:
			what = "*No effect*, because " + p.Because
		case NotSupported:
			what = "*Not supported*, because " + p.Because
		}
		def := p.Default
		if p.Mandatory {
			def = "given"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", cell(name), cell(def), cell(p.Range()), p.Unit, p.Needs, cell(what))
	}
	return b.String()
}

// cell keeps a text from ending its table cell or being taken for markup.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "__", `\_\_`).Replace(s)
}

func TestDocs(t *testing.T) {
	want := docs()
	if *update {
		if err := os.MkdirAll("../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(docsPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: run go test ./config -run TestDocs -update", docsPath)
	}
}

// TestDocsExamplesAreAccepted parses the examples of the document.
func TestDocsExamplesAreAccepted(t *testing.T) {
	parts := strings.Split(docsHead, "```")
	if len(parts) != 5 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, mycnf := range []bool{false, true} {
		c, _ := mustParse(t, strings.TrimPrefix(parts[2*i+1], "ini"), Options{MyCnf: mycnf})
		if len(c.DataNodes()) != 2 || len(c.ManagementNodes()) != 1 || c.Replicas() != 2 {
			t.Errorf("example %d: %s", i, c.Text())
		}
	}
}
