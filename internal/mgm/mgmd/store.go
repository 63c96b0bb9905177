package mgmd

import (
	"errors"
	"fmt"

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

// Choice is the configuration that a server starts with, and what is to be said about it.
type Choice struct {
	Config *config.Config
	Notes  []string // for the cluster log: how it came about, every change
	Warn   []string // for the operator as well
}

// Choose decides which configuration counts when a server starts: the stored one, unless there is none, or the operator
// says --initial (everything stored is dropped) or --reload (what changed in the file becomes a new version). file is
// the configuration of the file, nil if none was named.
func Choose(store *configstore.Store, file *config.Config, initial, reload bool) (*Choice, error) {
	if store == nil || initial {
		return chooseFile(store, file, initial)
	}
	raw, _, err := store.Load()
	if errors.Is(err, configstore.ErrNone) {
		return chooseFile(store, file, false)
	}
	if err != nil {
		return nil, err
	}
	stored, err := config.UnmarshalBinary(raw)
	if err != nil {
		return nil, fmt.Errorf("the stored configuration cannot be used: %w", err)
	}
	ch := &Choice{Config: stored, Notes: []string{fmt.Sprintf("Configuration %d of cluster %s is used, as stored", stored.Generation, stored.Name)}}
	if file == nil {
		return ch, nil
	}
	if file.Name == "" {
		file.Name = stored.Name
	}
	changes := config.Diff(stored, file)
	if len(changes) == 0 {
		return ch, nil
	}
	if !reload {
		ch.Warn = []string{fmt.Sprintf("the configuration file differs from the stored configuration %d in %d points (the first: %s), and the stored one counts: "+
			"start with --reload to take the changes, or with --initial to begin anew", stored.Generation, len(changes), changes[0])}
		return ch, nil
	}
	if file.Name != stored.Name {
		return nil, fmt.Errorf("the configuration file names the cluster %q and the stored configuration %q: nodes of one cannot work with the other; start with --initial if that is meant",
			file.Name, stored.Name)
	}
	if err := Store(store, file, false); err != nil {
		return nil, err
	}
	ch.Config = file
	ch.Notes = []string{fmt.Sprintf("Configuration %d of cluster %s is used, reloaded from the file", file.Generation, file.Name)}
	for _, change := range changes {
		ch.Notes = append(ch.Notes, fmt.Sprintf("Configuration %d: %s", file.Generation, change))
	}
	return ch, nil
}

// chooseFile takes the file's configuration and stores it, if anything is stored at all.
func chooseFile(store *configstore.Store, file *config.Config, initial bool) (*Choice, error) {
	if file == nil {
		return nil, errors.New("no configuration is stored and no file was named: name one with -f FILE")
	}
	if file.Name == "" {
		file.Name = NewName()
	}
	if store == nil {
		file.Generation = max(file.Generation, 1)
		return &Choice{Config: file, Notes: []string{fmt.Sprintf("Configuration of cluster %s is used from the file and not stored", file.Name)}}, nil
	}
	if err := Store(store, file, initial); err != nil {
		return nil, err
	}
	return &Choice{Config: file, Notes: []string{fmt.Sprintf("Configuration %d of cluster %s is used, read from the file", file.Generation, file.Name)}}, nil
}
