// Package configstore keeps a management server's configuration on disk, as files ndb_<node>_config.bin.<sequence>.
//
// Every change of the configuration makes a file with the next sequence number; the highest one counts, and taking it
// away goes back to the one before. A file is a header, a SHA-256 over header and contents, and the contents, which this
// package does not look into:
//
//	bytes 0–7    "CHRTCONF"
//	bytes 8–11   version of this format, 1 (all numbers little endian)
//	bytes 12–15  node id of the management server
//	bytes 16–19  sequence number, the one in the file's name
//	bytes 20–23  length of the contents
//	bytes 24–55  SHA-256 of bytes 0–23 and the contents
//	bytes 56–    contents
//
// It owns those files and no others. It never repairs or removes a damaged file by itself: a wrong configuration is
// worse than none, so the error names the file and what an operator can do. Invariant: a file that has its final name is
// whole, whatever happened while it was written (written under another name, synced, renamed, folder synced).
//
// Read next: mgmd, which decides when a configuration is stored.
package configstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	magic         = "CHRTCONF"
	formatVersion = 1
	headerBytes   = 24
	contentsAt    = headerBytes + sha256.Size
	// contentsMax is far above what 255 nodes take; a larger file is no configuration.
	contentsMax = 64 << 20
)

// ErrNone says that nothing is stored.
var ErrNone = errors.New("no configuration is stored")

// Damaged says which file cannot be used and what to do.
type Damaged struct {
	File   string
	Reason string
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("the stored configuration %s cannot be used, %s: move it away to go back to the one before it (the next lower number), "+
		"or start with --initial to read the configuration file anew", d.File, d.Reason)
}

// Store is the files of one management server in one folder.
type Store struct {
	dir  string
	node int
}

// Open makes dir if need be.
func Open(dir string, node int) (*Store, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("the folder of the stored configuration cannot be made (%w): name another with --configdir", err)
	}
	return &Store{dir: dir, node: node}, nil
}

// Path is the file of a sequence number.
func (s *Store) Path(sequence uint32) string {
	return filepath.Join(s.dir, fmt.Sprintf("ndb_%d_config.bin.%d", s.node, sequence))
}

// parseName takes a file's name apart.
func parseName(name string) (node int, sequence uint32, ok bool) {
	rest, ok := strings.CutPrefix(name, "ndb_")
	if !ok {
		return 0, 0, false
	}
	first, second, ok := strings.Cut(rest, "_config.bin.")
	if !ok {
		return 0, 0, false
	}
	n, err1 := strconv.ParseUint(first, 10, 8)
	q, err2 := strconv.ParseUint(second, 10, 32)
	if err1 != nil || err2 != nil || n == 0 || q == 0 {
		return 0, 0, false
	}
	return int(n), uint32(q), true
}

// Nodes are the node ids that have files in dir, in ascending order. A folder that does not exist has none.
func Nodes(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of the stored configuration cannot be read (%w): permit it or name another with --configdir", err)
	}
	var nodes []int
	for _, e := range entries {
		if node, _, ok := parseName(e.Name()); ok && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}

// Sequences are the stored sequence numbers in ascending order.
func (s *Store) Sequences() ([]uint32, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("the folder of the stored configuration cannot be read (%w): permit it or name another with --configdir", err)
	}
	var all []uint32
	for _, e := range entries {
		if node, sequence, ok := parseName(e.Name()); ok && node == s.node {
			all = append(all, sequence)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Load gives the contents with the highest sequence number, ErrNone if there are none, *Damaged if they cannot be used.
func (s *Store) Load() (contents []byte, sequence uint32, err error) {
	all, err := s.Sequences()
	if err != nil {
		return nil, 0, err
	}
	if len(all) == 0 {
		return nil, 0, ErrNone
	}
	sequence = all[len(all)-1]
	contents, err = s.read(sequence)
	return contents, sequence, err
}

func (s *Store) read(sequence uint32) ([]byte, error) {
	path := s.Path(sequence)
	damaged := func(format string, args ...any) error { return &Damaged{path, fmt.Sprintf(format, args...)} }
	info, err := os.Stat(path)
	if err != nil {
		return nil, damaged("it cannot be read (%v)", err)
	}
	if info.Size() > contentsMax {
		return nil, damaged("it has %d bytes, too many for a configuration", info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, damaged("it cannot be read (%v)", err)
	}
	if len(raw) < contentsAt || string(raw[:8]) != magic {
		return nil, damaged("it does not begin as such a file does")
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(raw[at:]) }
	contents := raw[contentsAt:]
	switch {
	case word(8) != formatVersion:
		return nil, damaged("it is of format %d and this program reads format %d", word(8), formatVersion)
	case int64(word(20)) != int64(len(contents)):
		return nil, damaged("it should hold %d bytes and holds %d", word(20), len(contents))
	case !bytes.Equal(sum(raw[:headerBytes], contents), raw[headerBytes:contentsAt]):
		return nil, damaged("its checksum is wrong")
	case word(12) != uint32(s.node) || word(16) != sequence:
		return nil, damaged("it was written as node %d's number %d", word(12), word(16))
	}
	return contents, nil
}

func sum(header, contents []byte) []byte {
	h := sha256.New()
	h.Write(header)
	h.Write(contents)
	return h.Sum(nil)
}

// Next is the sequence number that comes after all that are stored.
func (s *Store) Next() (uint32, error) {
	all, err := s.Sequences()
	if err != nil || len(all) == 0 {
		return 1, err
	}
	return all[len(all)-1] + 1, nil
}

// Save stores contents under a sequence number, Next or a higher one.
func (s *Store) Save(sequence uint32, contents []byte) error {
	next, err := s.Next()
	if err != nil {
		return err
	}
	if sequence < next {
		return fmt.Errorf("configuration %d cannot be stored, because %d is: another management server writes to %s; give each a --configdir of its own", sequence, next-1, s.dir)
	}
	return s.write(sequence, contents)
}

// Replace stores contents and removes all that was stored before, whole or damaged. What has a lower number than that is
// stored when that is gone: were the process to end in between, nothing would be stored.
func (s *Store) Replace(sequence uint32, contents []byte) error {
	old, err := s.Sequences()
	if err != nil {
		return err
	}
	lower := len(old) > 0 && sequence <= old[len(old)-1]
	if lower {
		if err := s.remove(old); err != nil {
			return err
		}
		old = nil
	}
	if err := s.Save(sequence, contents); err != nil {
		return err
	}
	return s.remove(old)
}

func (s *Store) remove(sequences []uint32) error {
	for _, q := range sequences {
		if err := os.Remove(s.Path(q)); err != nil {
			return fmt.Errorf("an old stored configuration cannot be removed (%w): remove it by hand", err)
		}
	}
	return syncDir(s.dir)
}

func (s *Store) write(sequence uint32, contents []byte) error {
	if len(contents) > contentsMax {
		return fmt.Errorf("a configuration of %d bytes is too large to store", len(contents))
	}
	header := make([]byte, 0, contentsAt+len(contents))
	header = append(header, magic...)
	header = binary.LittleEndian.AppendUint32(header, formatVersion)
	header = binary.LittleEndian.AppendUint32(header, uint32(s.node))
	header = binary.LittleEndian.AppendUint32(header, sequence)
	header = binary.LittleEndian.AppendUint32(header, uint32(len(contents)))
	whole := append(append(header, sum(header, contents)...), contents...)
	if err := s.place(s.Path(sequence), whole); err != nil {
		return fmt.Errorf("the configuration cannot be stored (%w): make room or permit writing, or name another folder with --configdir", err)
	}
	return nil
}

// place gives the file its name only when its bytes are on the disk.
func (s *Store) place(path string, whole []byte) (err error) {
	f, err := os.CreateTemp(s.dir, fmt.Sprintf("ndb_%d_config.tmp.*", s.node))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(whole)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(s.dir)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
