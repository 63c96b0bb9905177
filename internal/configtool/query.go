package configtool

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cohortdb/cohort/config"
)

// types are the names of node types as NDB's tool has them.
var types = map[string]config.NodeType{
	"ndbd": config.DataNode, "mysqld": config.APINode, "ndb_mgmd": config.ManagementNode,
}

var typeNames = map[config.NodeType]string{
	config.DataNode: "ndbd", config.APINode: "mysqld", config.ManagementNode: "ndb_mgmd",
}

var sectionOf = map[config.NodeType]config.Section{
	config.DataNode: config.SectionNDBD, config.APINode: config.SectionAPI, config.ManagementNode: config.SectionMGMD,
}

// row is one thing that has parameters: a node, a link, the cluster.
type row struct {
	section config.Section
	special map[string]string // answers to names that are no parameters, or whose value is not simply the parameter's
	value   func(name string) string
	isSet   func(name string) bool // that a file gave the value
}

// values answers a query about a configuration.
func (r *request) values(c *config.Config) (string, error) {
	rows, err := r.select_(c)
	if err != nil {
		return "", err
	}
	if r.diffDefault {
		return differences(rows), nil
	}
	names := strings.Split(r.query, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if !r.queryAll && !known(names[i], rows) {
			return "", fmt.Errorf("nothing that the query is about has a parameter %q: --configinfo lists them", names[i])
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var fields []string
		if r.queryAll {
			for _, p := range config.Describe() {
				if p.Section == row.section {
					fields = append(fields, p.Name+"="+row.get(p.Name))
				}
			}
		} else {
			for _, name := range names {
				fields = append(fields, row.get(name))
			}
		}
		lines[i] = strings.Join(fields, r.fields)
	}
	if len(lines) == 0 {
		return "", nil
	}
	return strings.Join(lines, r.rows) + "\n", nil
}

// select_ gathers what the query is about.
func (r *request) select_(c *config.Config) ([]row, error) {
	if r.system {
		return []row{systemRow(c)}, nil
	}
	if r.nodeID != 0 && c.Node(r.nodeID) == nil {
		return nil, fmt.Errorf("there is no node %d in this configuration: --query=id lists them", r.nodeID)
	}
	var rows []row
	for _, n := range c.Nodes {
		if !r.wants(n) {
			continue
		}
		if !r.connections {
			rows = append(rows, nodeRow(n))
			continue
		}
		// A link is listed with its data node of the lower id; two nodes without data have none.
		for _, other := range c.Nodes {
			if n.Type == config.DataNode && other.ID != n.ID && (other.Type != config.DataNode || other.ID > n.ID) {
				rows = append(rows, linkRow(c.Link(n.ID, other.ID)))
			}
		}
	}
	return rows, nil
}

// wants applies the filters to a node.
func (r *request) wants(n *config.Node) bool {
	return (r.nodeID == 0 || n.ID == r.nodeID) && (r.host == "" || strings.EqualFold(n.HostName, r.host)) &&
		(r.kind == "" || types[r.kind] == n.Type)
}

func nodeRow(n *config.Node) row {
	special := map[string]string{
		"id": strconv.Itoa(n.ID), "nodeid": strconv.Itoa(n.ID), "type": typeNames[n.Type],
		"host": n.HostName, "hostname": n.HostName, "nodegroup": "",
	}
	if n.Type == config.DataNode {
		special["nodegroup"] = strconv.Itoa(n.NodeGroup)
	}
	return row{sectionOf[n.Type], special, n.String, n.IsSet}
}

func linkRow(l *config.Link) row {
	return row{config.SectionTCP, map[string]string{
		"type": "tcp", "nodeid1": strconv.Itoa(l.A), "nodeid2": strconv.Itoa(l.B),
		"hostname1": l.HostName(l.A), "hostname2": l.HostName(l.B),
	}, l.String, l.IsSet}
}

func systemRow(c *config.Config) row {
	special := map[string]string{"name": c.Name, "configgenerationnumber": strconv.Itoa(int(c.Generation))}
	none := func(string) string { return "" }
	return row{config.SectionSystem, special, none, func(string) bool { return false }}
}

// get is the value of a parameter of a row, in any spelling; empty where its kind has none of that name.
func (w *row) get(name string) string {
	if v, ok := w.special[strings.ToLower(name)]; ok {
		return v
	}
	if p := config.Lookup(w.section, name); p != nil {
		if v, ok := w.special[strings.ToLower(p.Name)]; ok {
			return v
		}
		return w.value(p.Name)
	}
	return ""
}

// known reports whether any row has something of that name. A query about no row knows every name of any section.
func known(name string, rows []row) bool {
	if len(rows) == 0 {
		return true
	}
	for _, w := range rows {
		if _, special := w.special[strings.ToLower(name)]; special || config.Lookup(w.section, name) != nil {
			return true
		}
	}
	return false
}

// differences lists, node by node, the parameters that were set to something else than their default.
func differences(rows []row) string {
	var b strings.Builder
	for _, w := range rows {
		fmt.Fprintf(&b, "config of [%s] node id %s that is different from default\nCONFIG_PARAMETER,ACTUAL_VALUE,DEFAULT_VALUE\n", w.section, w.get("id"))
		for _, p := range config.Describe() {
			if p.Section != w.section || !w.isSet(p.Name) || w.value(p.Name) == p.Default {
				continue
			}
			def := p.Default
			switch {
			case p.Mandatory:
				def = "(mandatory)"
			case def == "":
				def = "(null)"
			}
			fmt.Fprintf(&b, "%s,%s,%s\n", p.Name, w.value(p.Name), def)
		}
		b.WriteString("\n")
	}
	return b.String()
}
