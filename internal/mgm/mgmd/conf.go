package mgmd

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/wire"
	"github.com/cohortdb/cohort/internal/version"
)

// setConfig puts a configuration to use: from here on nodes get this one. What is known of nodes that stay is kept. The
// caller holds mu, or has the server to itself.
func (s *Server) setConfig(c *config.Config) error {
	raw, err := c.MarshalBinary()
	if err != nil {
		return err
	}
	var nodes [256]*node
	for _, conf := range c.Nodes {
		n := s.nodes[conf.ID]
		if n == nil || n.conf.Type != conf.Type {
			n = &node{state: nothing}
		}
		n.conf = conf
		nodes[conf.ID] = n
	}
	s.conf, s.raw, s.nodes = c, raw, nodes
	return nil
}

// NewName invents a name for a cluster whose configuration has none.
func NewName() string { return fmt.Sprintf("cohort-%08x", rand.Uint32()) }

func (s *Server) getConfig(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "get config reply"
	node, from := num(r, "node", 0), num(r, "from_node", 0)
	if v := num(r, "version", 0); !version.Compatible(v, version.Number) {
		return bad(header, fmt.Sprintf("Incompatible versions: the management server has %s and asked was for %s; use the same version",
			version.Text(version.Number), version.Text(v)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if node > 255 || node != 0 && s.nodes[node] == nil {
		return bad(header, fmt.Sprintf("No node defined with id=%d in config file.", node))
	}
	if from != 0 && from != uint32(s.own) {
		return bad(header, fmt.Sprintf("Fetching the configuration of node %d through this server is not supported yet; ask without from_node", from))
	}
	if _, given := r.Fields.Get("nodetype"); given && node != 0 {
		if t := config.NodeType(num(r, "nodetype", 0)); s.nodes[node].conf.Type != t {
			return bad(header, fmt.Sprintf("Id %d configured as %s.", node, typeName(s.nodes[node].conf.Type)))
		}
	}
	body := base64Lines(s.raw)
	return answer{bytes: wire.Begin(header).Field("result", "Ok").
		Int("Content-Length", int64(len(body))).
		Field("Content-Type", "ndbconfig/octet-stream").
		Field("Content-Transfer-Encoding", "base64").EndBody(body)}
}

// base64Lines writes base64 in lines of 76 characters, as mail does.
func base64Lines(raw []byte) []byte {
	const line = 76
	text := base64.StdEncoding.EncodeToString(raw)
	var b strings.Builder
	for len(text) > line {
		b.WriteString(text[:line])
		b.WriteByte('\n')
		text = text[line:]
	}
	b.WriteString(text)
	return []byte(b.String())
}

// putConfig takes a configuration from a client.
func (s *Server) putConfig(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "set config reply"
	if encoding, ok := r.Fields.Get("Content-Transfer-Encoding"); ok && !strings.EqualFold(encoding, "base64") {
		return bad(header, fmt.Sprintf("Content-Transfer-Encoding %s is not known; use base64", encoding))
	}
	if kind, ok := r.Fields.Get("Content-Type"); ok && !strings.EqualFold(kind, "ndbconfig/octet-stream") {
		return bad(header, fmt.Sprintf("Content-Type %s is not known; use ndbconfig/octet-stream", kind))
	}
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(r.Body)))
	n, err := base64.StdEncoding.Decode(raw, r.Body)
	if err != nil {
		return bad(header, "The body is not base64: "+err.Error())
	}
	c, err := config.UnmarshalBinary(raw[:n])
	if err != nil {
		return bad(header, err.Error())
	}
	if why := s.change(c); why != "" {
		return bad(header, why)
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}

// reloadConfig reads the configuration file again and takes what changed.
func (s *Server) reloadConfig(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "reload config reply"
	if s.opts.Read == nil {
		return bad(header, "This server was started without a configuration file; start it again with -f FILE --reload")
	}
	if flag(r, "force") {
		return bad(header, "Forcing a configuration on running nodes is not supported yet; leave force out")
	}
	file, _ := r.Fields.Get("config_filename")
	c, warnings, err := s.opts.Read(file, flag(r, "mycnf"))
	if err != nil {
		return bad(header, err.Error())
	}
	for _, w := range warnings {
		s.note(event.Warning, "%s", w)
	}
	if why := s.change(c); why != "" {
		return bad(header, why)
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}

// change takes a new configuration, stored first, then used, or says why not. Running nodes keep what they have until
// they start anew, so a change that would take a running node's place away is refused.
func (s *Server) change(c *config.Config) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Name == "" {
		c.Name = s.conf.Name
	}
	changes := config.Diff(s.conf, c)
	if len(changes) == 0 {
		s.note(event.Note, "The configuration has not changed")
		return ""
	}
	if c.Name != s.conf.Name {
		return fmt.Sprintf("The name of a cluster (%s) cannot be changed while nodes may run; start the management server with --initial", s.conf.Name)
	}
	for id, n := range s.nodes {
		if n == nil || n.holder == nil && n.link == nil && id != int(s.own) {
			continue
		}
		if conf := c.Node(id); conf == nil || conf.Type != n.conf.Type {
			return fmt.Sprintf("Node %d runs and has no place in the new configuration; stop it first", id)
		}
	}
	c.Generation = s.conf.Generation + 1
	if s.opts.Store != nil {
		if err := Store(s.opts.Store, c, false); err != nil {
			return err.Error()
		}
	}
	if err := s.setConfig(c); err != nil {
		return err.Error()
	}
	for _, change := range changes {
		s.report(event.New(s.own, event.ConfigChanged, c.Generation).WithText(change.String()))
	}
	s.signalChange()
	return ""
}

// showConfig prints parameters: of a section, of a node, of a name, or all.
func (s *Server) showConfig(_ context.Context, _ *session, r *wire.Request) answer {
	const header = "show config reply"
	section, _ := r.Fields.Get("Section")
	name, _ := r.Fields.Get("Name")
	id := num(r, "NodeId", 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id > 255 || id != 0 && s.nodes[id] == nil {
		return bad(header, fmt.Sprintf("There is no node %d in the configuration", id))
	}
	b := wire.Begin(header)
	if id == 0 && matches("SYSTEM", section) {
		if matches("Name", name) {
			b.Field("SYSTEM.Name", s.conf.Name)
		}
		if matches("ConfigGenerationNumber", name) {
			b.Uint("SYSTEM.ConfigGenerationNumber", s.conf.Generation)
		}
	}
	all := config.Describe()
	for _, n := range s.nodes {
		if n == nil || id != 0 && n.conf.ID != int(id) {
			continue
		}
		word := SectionOf(n.conf.Type).String()
		if !matches(word, section) {
			continue
		}
		for i := range all {
			p := &all[i]
			if p.Section.String() == word && matches(p.Name, name) {
				b.Field(fmt.Sprintf("%s.%d.%s", word, n.conf.ID, p.Name), n.conf.String(p.Name))
			}
		}
	}
	return reply(b)
}

// matches says that a selection, empty for everything, means a word.
func matches(word, selection string) bool {
	return selection == "" || strings.EqualFold(word, selection)
}

// SectionOf is the section that describes nodes of a type.
func SectionOf(t config.NodeType) config.Section {
	switch t {
	case config.DataNode:
		return config.SectionNDBD
	case config.ManagementNode:
		return config.SectionMGMD
	}
	return config.SectionAPI
}
