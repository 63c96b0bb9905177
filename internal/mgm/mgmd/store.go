package mgmd

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/configstore"
)

// Store stores a configuration under its Generation; replace removes all that was stored before.
func Store(store *configstore.Store, c *config.Config, replace bool) error {
	next, err := store.Next()
	if err != nil {
		return err
	}
	// The generation that nodes see is the number of the file that it lies in, and never goes back.
	c.Generation = max(c.Generation, next)
	raw, err := c.MarshalBinary()
	if err != nil {
		return err
	}
	if replace {
		return store.Replace(c.Generation, raw)
	}
	return store.Save(c.Generation, raw)
}

// Start is what a server has to choose its configuration from.
type Start struct {
	Store   *configstore.Store // nil: nothing is stored
	File    *config.Config     // of the file that was named, nil if none was
	Initial bool               // drop what is stored
	Reload  bool               // take what has changed in the file
	Own     int                // node id
	Running []Running          // other management servers of the cluster that answer
}

// Running is a management server that runs already.
type Running struct {
	Node   int
	Where  string // host:port
	Config *config.Config
}

// Choice is the configuration that a server starts with, and what is to be said about it.
type Choice struct {
	Config *config.Config
	// Change is to be made together with the servers that run, once this one does; nil: nothing.
	Change *config.Config
	Notes  []string // for the cluster log: how it came about, every change
	Warn   []string // for the operator as well
}

// Choose decides which configuration counts when a server starts: the newest of what is stored here and what the servers
// that run already have. Only where there is neither, the file's; --initial (everything stored is dropped) and --reload
// (what changed in the file becomes a new version) say otherwise, and where other servers run they must all agree.
func (st Start) Choose() (*Choice, error) {
	stored, err := st.load()
	if err != nil {
		return nil, err
	}
	newest, err := newestOf(st.Running)
	if err != nil {
		return nil, err
	}
	switch {
	case newest != nil:
		return st.join(stored, newest)
	case stored == nil:
		return st.begin()
	}
	return st.resume(stored)
}

// load reads what is stored; nil where nothing is, or is to be dropped.
func (st *Start) load() (*config.Config, error) {
	if st.Store == nil || st.Initial {
		return nil, nil
	}
	raw, _, err := st.Store.Load()
	if errors.Is(err, configstore.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	stored, err := config.UnmarshalBinary(raw)
	if err != nil {
		return nil, fmt.Errorf("the stored configuration cannot be used: %w", err)
	}
	return stored, nil
}

// newestOf is the server with the newest configuration, nil if none runs. The others will fetch it from there.
func newestOf(running []Running) (newest *Running, err error) {
	for i := range running {
		r := &running[i]
		if newest != nil && r.Config.Name != newest.Config.Name {
			return nil, fmt.Errorf("management servers of two clusters answer: node %d at %s of cluster %s, node %d at %s of cluster %s: correct the configuration's hosts and ports, or stop one of them",
				newest.Node, newest.Where, newest.Config.Name, r.Node, r.Where, r.Config.Name)
		}
		if newest == nil || r.Config.Generation > newest.Config.Generation {
			newest = r
		}
	}
	return newest, nil
}

// join is a start while other servers run.
func (st *Start) join(stored *config.Config, with *Running) (*Choice, error) {
	theirs, named := with.Config, st.File != nil && st.File.Name != ""
	other := ""
	switch {
	case stored != nil && stored.Name != theirs.Name:
		other = stored.Name
	case named && st.File.Name != theirs.Name:
		other = st.File.Name
	}
	if other != "" {
		return nil, fmt.Errorf("configuration mismatch: the management server at %s (node %d) is of cluster %s, and this one would be of cluster %s: "+
			"correct the name, or stop the other one", with.Where, with.Node, theirs.Name, other)
	}
	ch := &Choice{Config: theirs, Notes: []string{fmt.Sprintf("Configuration %d of cluster %s is used, as management server %d at %s has it", theirs.Generation, theirs.Name, with.Node, with.Where)}}
	if stored != nil && stored.Generation >= theirs.Generation {
		if stored.Generation == theirs.Generation {
			if changes := config.Diff(theirs, stored); len(changes) > 0 {
				return nil, mismatch("the stored configuration", theirs.Generation, with, changes, "move what is stored away to fetch the other's")
			}
		}
		ch.Config = stored
		ch.Notes = []string{fmt.Sprintf("Configuration %d of cluster %s is used, as stored", stored.Generation, stored.Name)}
	}
	if own := ch.Config.Node(st.Own); own == nil || own.Type != config.ManagementNode {
		return nil, fmt.Errorf("node %d is no management server in configuration %d, with which management server %d at %s runs: correct --ndb-nodeid, or add the node there with --reload",
			st.Own, ch.Config.Generation, with.Node, with.Where)
	}
	if err := st.compare(ch, stored != nil && !st.Initial, with); err != nil {
		return nil, err
	}
	if st.Store == nil || ch.Config == stored {
		return ch, nil
	}
	raw, err := ch.Config.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if st.Initial {
		return ch, st.Store.Replace(ch.Config.Generation, raw)
	}
	return ch, st.Store.Save(ch.Config.Generation, raw)
}

// compare says what a file that differs from the configuration that counts means.
func (st *Start) compare(ch *Choice, wasStored bool, with *Running) error {
	if st.File == nil {
		return nil
	}
	if st.File.Name == "" {
		st.File.Name = ch.Config.Name
	}
	changes := config.Diff(ch.Config, st.File)
	switch {
	case len(changes) == 0:
	case st.Reload || st.Initial:
		ch.Change = st.File
	case wasStored:
		ch.Warn = []string{differs(ch.Config, changes)}
	default:
		return mismatch("the configuration file", ch.Config.Generation, with, changes, "correct the file, or start without -f to fetch the other's")
	}
	return nil
}

func mismatch(what string, generation uint32, with *Running, changes []config.Change, do string) error {
	return fmt.Errorf("configuration mismatch: %s differs from configuration %d, with which management server %d at %s runs, in %d points (the first: %s): "+
		"%s, or take the changes everywhere with --reload", what, generation, with.Node, with.Where, len(changes), changes[0], do)
}

func differs(stored *config.Config, changes []config.Change) string {
	return fmt.Sprintf("the configuration file differs from the stored configuration %d in %d points (the first: %s), and the stored one counts: "+
		"start with --reload to take the changes, or with --initial to begin anew", stored.Generation, len(changes), changes[0])
}

// resume is a start with what is stored, where no other server runs.
func (st *Start) resume(stored *config.Config) (*Choice, error) {
	ch := &Choice{Config: stored, Notes: []string{fmt.Sprintf("Configuration %d of cluster %s is used, as stored", stored.Generation, stored.Name)}}
	if st.File == nil {
		return ch, nil
	}
	file := st.File
	if file.Name == "" {
		file.Name = stored.Name
	}
	changes := config.Diff(stored, file)
	if len(changes) == 0 {
		return ch, nil
	}
	if !st.Reload {
		ch.Warn = []string{differs(stored, changes)}
		return ch, nil
	}
	if file.Name != stored.Name {
		return nil, fmt.Errorf("the configuration file names the cluster %q and the stored configuration %q: nodes of one cannot work with the other; start with --initial if that is meant",
			file.Name, stored.Name)
	}
	for _, n := range stored.ManagementNodes() {
		if kept := file.Node(n.ID); n.ID != st.Own && kept != nil && kept.Type == config.ManagementNode {
			return nil, fmt.Errorf("a change of the configuration needs all management servers, and node %d does not answer: start it first, without --reload; "+
				"or begin anew with --initial on all of them", n.ID)
		}
	}
	if err := Store(st.Store, file, false); err != nil {
		return nil, err
	}
	ch.Config = file
	ch.Notes = []string{fmt.Sprintf("Configuration %d of cluster %s is used, reloaded from the file", file.Generation, file.Name)}
	for _, change := range changes {
		ch.Notes = append(ch.Notes, fmt.Sprintf("Configuration %d: %s", file.Generation, change))
	}
	return ch, nil
}

// begin takes the file's configuration and stores it, if anything is stored at all.
func (st *Start) begin() (*Choice, error) {
	file := st.File
	if file == nil {
		return nil, errors.New("no configuration is stored and no file was named: name one with -f FILE, or another management server with -c HOST:PORT")
	}
	if file.Name == "" {
		file.Name = NewName(file)
	}
	if st.Store == nil {
		file.Generation = max(file.Generation, 1)
		return &Choice{Config: file, Notes: []string{fmt.Sprintf("Configuration of cluster %s is used from the file and not stored", file.Name)}}, nil
	}
	if err := Store(st.Store, file, st.Initial); err != nil {
		return nil, err
	}
	return &Choice{Config: file, Notes: []string{fmt.Sprintf("Configuration %d of cluster %s is used, read from the file", file.Generation, file.Name)}}, nil
}

// NewName invents a name for a cluster whose configuration has none. Where there are several management servers, each
// that is started with the same configuration must come to the same one.
func NewName(c *config.Config) string {
	if len(c.ManagementNodes()) < 2 {
		return fmt.Sprintf("cohort-%08x", rand.Uint32())
	}
	h := fnv.New32a()
	for _, n := range c.Nodes {
		fmt.Fprintf(h, "%d %d %s", n.ID, n.Type, n.HostName)
		if n.Type == config.ManagementNode {
			fmt.Fprintf(h, " %d", n.Int("PortNumber"))
		}
		fmt.Fprintln(h)
	}
	return fmt.Sprintf("cohort-%08x", h.Sum32())
}
