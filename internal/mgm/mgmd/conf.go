package mgmd

import (
	"context"
	"encoding/base64"
	"fmt"
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
	s.refreshPeers()
	return nil
}

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
	// All management servers that are connected have the same.
	if p := s.peers[uint8(min(from, 255))]; from != 0 && from != uint32(s.own) && (p == nil || !p.ready) {
		return bad(header, fmt.Sprintf("The configuration of node %d cannot be had: it is no management server that is connected; ask without from_node", from))
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
func (s *Server) putConfig(ctx context.Context, _ *session, r *wire.Request) answer {
	const header = "set config reply"
	c, why := confOf(r)
	if why != "" {
		return bad(header, why)
	}
	if why := s.change(ctx, c); why != "" {
		return bad(header, why)
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
}

// reloadConfig reads the configuration file again and takes what changed.
func (s *Server) reloadConfig(ctx context.Context, _ *session, r *wire.Request) answer {
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
	if why := s.change(ctx, c); why != "" {
		return bad(header, why)
	}
	return reply(wire.Begin(header).Field("result", "Ok"))
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
