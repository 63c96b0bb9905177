package configstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "new", "folder"), 49)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t *testing.T, s *Store, text string) uint32 {
	t.Helper()
	sequence, err := s.Next()
	if err == nil {
		err = s.Save(sequence, []byte(text))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sequence
}

func TestTheNewestCountsAndTakingItAwayGoesBack(t *testing.T) {
	s := open(t)
	if _, _, err := s.Load(); !errors.Is(err, ErrNone) {
		t.Fatalf("an empty folder: %v", err)
	}
	for i, text := range []string{"one", "two", "three"} {
		if q := save(t, s, text); q != uint32(i+1) {
			t.Fatalf("sequence %d", q)
		}
	}
	if c, q, err := s.Load(); string(c) != "three" || q != 3 || err != nil {
		t.Fatalf("%q, %d, %v", c, q, err)
	}
	if err := os.Remove(s.Path(3)); err != nil {
		t.Fatal(err)
	}
	if c, q, err := s.Load(); string(c) != "two" || q != 2 || err != nil {
		t.Fatalf("%q, %d, %v", c, q, err)
	}
	// Names must sort by number, not as words.
	for range 9 {
		save(t, s, "later")
	}
	if _, q, _ := s.Load(); q != 11 {
		t.Fatalf("newest is %d", q)
	}
}

func TestReplaceLeavesOneFileEvenAmongDamagedOnes(t *testing.T) {
	s := open(t)
	save(t, s, "one")
	save(t, s, "two")
	if err := os.WriteFile(s.Path(2), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(2, []byte("older")); err == nil {
		t.Fatal("a number that is used was stored again")
	}
	if err := s.Replace(3, []byte("new")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "ndb_49_config.bin.3" {
		t.Fatalf("%v, %v", entries, err)
	}
	if nodes, err := Nodes(s.dir); !slices.Equal(nodes, []int{49}) || err != nil {
		t.Fatalf("%v, %v", nodes, err)
	}
}

// Every single damaged byte, every length and every other kind of damage must be noticed, and the error must say
// which file it is and what to do.
func TestEveryDamageIsNoticed(t *testing.T) {
	s := open(t)
	save(t, s, "good old configuration")
	save(t, s, "the newest configuration")
	path := s.Path(2)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, raw []byte) {
		t.Helper()
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		contents, _, err := s.Load()
		var damaged *Damaged
		if !errors.As(err, &damaged) || contents != nil {
			t.Fatalf("%s: %q, %v", what, contents, err)
		}
		if text := err.Error(); damaged.File != path || !strings.Contains(text, path) || !strings.Contains(text, "--initial") || !strings.Contains(text, "move it away") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range whole {
		raw := bytes.Clone(whole)
		raw[i] ^= 1
		check("a flipped bit", raw)
	}
	for n := range len(whole) {
		check("cut", whole[:n])
	}
	check("one byte more", append(bytes.Clone(whole), 0))
	// Another number's file under this name.
	first, err := os.ReadFile(s.Path(1))
	if err != nil {
		t.Fatal(err)
	}
	check("an old file under a new name", first)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Load(); err == nil {
		t.Fatal("a folder instead of a file")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c, q, err := s.Load(); string(c) != "good old configuration" || q != 1 || err != nil {
		t.Fatalf("after moving it away: %q, %d, %v", c, q, err)
	}
}

func TestAnUnfinishedFileIsNotSeen(t *testing.T) {
	s := open(t)
	save(t, s, "one")
	for _, name := range []string{"ndb_49_config.tmp.123", "ndb_49_config.bin.x", "ndb_49_config.bin.0", "ndb_300_config.bin.1", "ndb_7_config.bin.9"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, q, err := s.Load(); string(c) != "one" || q != 1 || err != nil {
		t.Fatalf("%q, %d, %v", c, q, err)
	}
	if nodes, err := Nodes(s.dir); !slices.Equal(nodes, []int{7, 49}) || err != nil {
		t.Fatalf("%v, %v", nodes, err)
	}
	if nodes, err := Nodes(filepath.Join(s.dir, "missing")); nodes != nil || err != nil {
		t.Fatalf("%v, %v", nodes, err)
	}
}

func TestAFolderThatCannotBeMadeIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "below"), 1); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--configdir") {
		t.Fatalf("%v", err)
	}
	if _, err := Nodes(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("%v", err)
	}
}
