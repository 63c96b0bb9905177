package mgmd

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/event"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/wire"
)

// One configuration for all management servers. A change is made by the server that is asked, in two rounds:
//
//	server --mgmd prepare--> all others      may it be? keep it, and take no other
//	server stores it: this is the point from which it counts
//	server --mgmd commit--> all others       store it and use it
//
// All configured servers must be there. If one refuses, or is lost before the point, it is "mgmd abort", and the old
// configuration stays everywhere. A server that is lost after it, or comes later with an older generation, fetches the
// newest from any other (greet). One generation with two contents can only come about when servers were kept apart; then
// the server that has run for the shorter time ends.

const (
	prepareReply = "mgmd prepare reply"
	commitReply  = "mgmd commit reply"
	abortReply   = "mgmd abort reply"
	endReply     = "mgmd end reply"
)

// prepared is a configuration that waits for its commit.
type prepared struct {
	by   uint8 // the server that makes the change
	conf *config.Config
}

// Change makes the change that a start with --reload or --initial asks for, together with the servers that run.
func (s *Server) Change(ctx context.Context, c *config.Config) error {
	s.meet(ctx)
	if why := s.change(ctx, c); why != "" {
		return fmt.Errorf("the configuration was not changed: %s", why)
	}
	return nil
}

// change takes a new configuration everywhere, or says why not. Running nodes keep what they have until they start anew.
func (s *Server) change(ctx context.Context, c *config.Config) (why string) {
	s.mu.Lock()
	if s.prepared != nil {
		s.mu.Unlock()
		return fmt.Sprintf("Another change of the configuration is under way, made by management server %d; try again", s.prepared.by)
	}
	if c.Name == "" {
		c.Name = s.conf.Name
	}
	changes := config.Diff(s.conf, c)
	if len(changes) == 0 {
		s.mu.Unlock()
		s.note(event.Note, "The configuration has not changed")
		return ""
	}
	why = s.mayBecome(c)
	c.Generation = s.conf.Generation + 1
	raw, err := c.MarshalBinary()
	if err != nil && why == "" {
		why = err.Error()
	}
	peers, missing := s.deciders(c)
	if missing != "" && why == "" {
		why = missing
	}
	if why != "" {
		s.mu.Unlock()
		return why
	}
	mine := &prepared{s.own, c}
	s.prepared = mine
	request := prepareRequest(s.conf.Generation, raw)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.prepared == mine {
			s.prepared = nil
		}
		s.signalChange()
	}()

	if why := s.askAll(peers, prepareReply, request); why != "" {
		s.askAll(peers, abortReply, wire.Begin("mgmd abort").End())
		return why + "; the configuration stays as it is"
	}
	if why := s.take(c, changes, true); why != "" {
		s.askAll(peers, abortReply, wire.Begin("mgmd abort").End())
		return why
	}
	if why := s.askAll(peers, commitReply, wire.Begin("mgmd commit").Uint("generation", c.Generation).End()); why != "" {
		s.note(event.Warning, "Configuration %d counts, but not every management server has confirmed it (%s); they fetch it when they are back", c.Generation, why)
	}
	return ""
}

// prepareRequest is the request to take a new configuration after the one of a generation.
func prepareRequest(generation uint32, raw []byte) []byte {
	body := base64Lines(raw)
	return wire.Begin("mgmd prepare").Uint("generation", generation).
		Int("Content-Length", int64(len(body))).Field("Content-Transfer-Encoding", "base64").EndBody(body)
}

// mayBecome says why a configuration cannot follow the present one. The caller holds mu.
func (s *Server) mayBecome(c *config.Config) string {
	if c.Name != s.conf.Name {
		return fmt.Sprintf("The name of a cluster (%s) cannot be changed while nodes may run; start the management server with --initial", s.conf.Name)
	}
	for id, n := range s.nodes {
		if n == nil {
			continue
		}
		p := s.peers[uint8(id)]
		if n.holder == nil && n.link == nil && id != int(s.own) && (p == nil || !p.ready) {
			continue
		}
		if conf := c.Node(id); conf == nil || conf.Type != n.conf.Type {
			return fmt.Sprintf("Node %d runs and has no place in the new configuration; stop it first", id)
		}
	}
	return ""
}

// deciders are the other servers that have to agree to a change: all that the new configuration keeps. The caller holds mu.
func (s *Server) deciders(c *config.Config) (all []*peer, missing string) {
	for _, p := range s.peers {
		if n := c.Node(int(p.id)); n == nil || n.Type != config.ManagementNode {
			continue // it is stopped, and not needed any more
		}
		if !p.ready {
			return nil, fmt.Sprintf("A change of the configuration needs all management servers, and node %d cannot be used (%s); start it first", p.id, p.why)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *peer) int { return int(a.id) - int(b.id) })
	return all, ""
}

// askAll asks peers and says what the first refusal was; one that is gone has refused.
func (s *Server) askAll(peers []*peer, header string, request []byte) (why string) {
	done := make([]chan error, len(peers))
	s.mu.Lock()
	for i, p := range peers {
		done[i] = make(chan error, 1)
		if !s.say(p, header, request, done[i]) {
			done[i] <- errPeerLost
		}
	}
	s.mu.Unlock()
	for i, p := range peers {
		err := <-done[i] // attend answers in any case
		var refusal *mgmclient.Refusal
		switch {
		case err == nil || why != "":
		case errors.As(err, &refusal):
			why = fmt.Sprintf("Management server %d refused: %s", p.id, refusal.Text)
		default:
			why = fmt.Sprintf("Management server %d was lost", p.id)
		}
	}
	return why
}

// take stores and uses a configuration. Without a store, or where that fails and need not work (must), it is only used.
func (s *Server) take(c *config.Config, changes []config.Change, must bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Store != nil {
		raw, err := c.MarshalBinary()
		if err == nil {
			err = s.opts.Store.Save(c.Generation, raw)
		}
		if err != nil && must {
			return err.Error()
		} else if err != nil {
			s.note(event.Error, "Configuration %d is used, but could not be stored: %v", c.Generation, err)
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

// onPrepare hears of a new configuration and keeps it until its commit.
func (s *Server) onPrepare(_ context.Context, ss *session, r *wire.Request) answer {
	c, why := confOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	p, notPeer := s.fromPeer(ss)
	switch {
	case notPeer != "":
		why = notPeer
	case why != "":
	case s.prepared != nil:
		why = fmt.Sprintf("Another change of the configuration is under way, made by management server %d", s.prepared.by)
	case num(r, "generation", 0) != s.conf.Generation:
		why = fmt.Sprintf("The configuration here is another one, %d", s.conf.Generation)
	case c.Generation != s.conf.Generation+1:
		why = fmt.Sprintf("Configuration %d cannot follow %d", c.Generation, s.conf.Generation)
	default:
		why = s.mayBecome(c)
	}
	if why == "" && s.opts.Store != nil {
		if next, err := s.opts.Store.Next(); err != nil {
			why = err.Error()
		} else if next > c.Generation {
			why = fmt.Sprintf("Configuration %d is stored already, and not used; start with --initial", next-1)
		}
	}
	if why != "" {
		return bad(prepareReply, why)
	}
	s.prepared = &prepared{p.id, c}
	return reply(wire.Begin(prepareReply).Field("result", "Ok"))
}

// confOf reads the configuration in a request's body.
func confOf(r *wire.Request) (*config.Config, string) {
	if encoding, ok := r.Fields.Get("Content-Transfer-Encoding"); ok && !strings.EqualFold(encoding, "base64") {
		return nil, fmt.Sprintf("Content-Transfer-Encoding %s is not known; use base64", encoding)
	}
	if kind, ok := r.Fields.Get("Content-Type"); ok && !strings.EqualFold(kind, "ndbconfig/octet-stream") {
		return nil, fmt.Sprintf("Content-Type %s is not known; use ndbconfig/octet-stream", kind)
	}
	raw := make([]byte, base64.StdEncoding.DecodedLen(len(r.Body)))
	n, err := base64.StdEncoding.Decode(raw, r.Body)
	if err != nil {
		return nil, "The body is not base64: " + err.Error()
	}
	c, err := config.UnmarshalBinary(raw[:n])
	if err != nil {
		return nil, err.Error()
	}
	return c, ""
}

// onCommit takes what was prepared.
func (s *Server) onCommit(_ context.Context, ss *session, r *wire.Request) answer {
	s.mu.Lock()
	p, why := s.fromPeer(ss)
	now := s.prepared
	var changes []config.Change
	switch {
	case why != "":
	case now == nil || now.by != p.id || now.conf.Generation != num(r, "generation", 0):
		why = fmt.Sprintf("Configuration %d was not prepared here", num(r, "generation", 0))
	default:
		changes = config.Diff(s.conf, now.conf)
		s.prepared = nil
	}
	s.mu.Unlock()
	if why == "" {
		why = s.take(now.conf, changes, false)
	}
	if why != "" {
		return bad(commitReply, why)
	}
	return reply(wire.Begin(commitReply).Field("result", "Ok"))
}

// onAbort forgets what was prepared.
func (s *Server) onAbort(_ context.Context, ss *session, _ *wire.Request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, why := s.fromPeer(ss)
	if why != "" {
		return bad(abortReply, why)
	}
	s.forgetPrepared(p.id)
	return reply(wire.Begin(abortReply).Field("result", "Ok"))
}

// forgetPrepared drops what a server had prepared here. If it has committed it meanwhile, this server will fetch it. The
// caller holds mu.
func (s *Server) forgetPrepared(by uint8) {
	if s.prepared != nil && s.prepared.by == by {
		s.prepared = nil
		s.signalChange()
	}
}

// fetch takes the configuration of another server, which is newer.
func (s *Server) fetch(ctx context.Context, c *mgmclient.Client) error {
	newer, err := c.GetConfig(ctx, 0)
	if err != nil {
		return err
	}
	s.mu.Lock()
	changes := config.Diff(s.conf, newer)
	name, generation := s.conf.Name, s.conf.Generation
	s.mu.Unlock()
	switch own := newer.Node(int(s.own)); {
	case newer.Name != name || newer.Generation <= generation:
		return errors.New("its configuration has changed again")
	case own == nil || own.Type != config.ManagementNode:
		s.stop(fmt.Errorf("configuration %d, which was fetched from %s, has no management server %d any more", newer.Generation, c.Addr(), s.own))
		return errors.New("this server has no place in its configuration")
	}
	if why := s.take(newer, changes, false); why != "" {
		return errors.New(why)
	}
	s.note(event.Note, "Configuration %d was fetched from the management server at %s", newer.Generation, c.Addr())
	return nil
}

// near is how close the uptimes of two servers must be for their ids to decide.
const near = time.Second

// same says whether the configuration of another server means the same as this one's, however it is written.
func (s *Server) same(ctx context.Context, c *mgmclient.Client) (bool, error) {
	theirs, err := c.GetConfig(ctx, 0)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return theirs.Generation == s.conf.Generation && len(config.Diff(s.conf, theirs)) == 0, nil
}

// conflict ends one of two servers whose configurations differ: the younger, or the one with the higher id where that
// cannot be told. The one with the lower id decides, so that it is one and the same for both.
func (s *Server) conflict(ctx context.Context, p *peer, c *mgmclient.Client, generation uint32, theirs time.Duration) error {
	mismatch := fmt.Errorf("configuration mismatch: management servers %d and %d have different configurations of generation %d", s.own, p.id, generation)
	if s.own > p.id {
		return mismatch
	}
	what := mismatch.Error() + ": start it without -f and with an empty --configdir to fetch the other's, or with --reload to change both"
	if time.Since(s.began)+near < theirs {
		s.stop(errors.New(what))
		return mismatch
	}
	if _, err := c.Exchange(ctx, endReply, wire.Begin("mgmd end").Field("reason", what).End()); err != nil {
		return err
	}
	return mismatch
}

// onEnd ends this server, whose configuration is not the one of the cluster.
func (s *Server) onEnd(_ context.Context, ss *session, r *wire.Request) answer {
	s.mu.Lock()
	_, why := s.fromPeer(ss)
	s.mu.Unlock()
	if why != "" {
		return bad(endReply, why)
	}
	reason, _ := r.Fields.Get("reason")
	s.stop(errors.New(reason))
	return reply(wire.Begin(endReply).Field("result", "Ok"))
}
