package clusterlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// fileSink writes a file and turns it over: when a line would make it larger than the limit, the file is renamed to
// NAME.N with the lowest N above all that exist, a new one is begun, and the oldest are removed until no more than the
// limit remain.
type fileSink struct {
	path     string
	maxBytes int64
	maxFiles int // the one being written included; 0: no limit
	file     *os.File
	bytes    int64 // size of file
}

func openFile(path string, maxBytes int64, maxFiles int) (*fileSink, error) {
	s := &fileSink{path: path, maxBytes: maxBytes, maxFiles: maxFiles}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("the cluster log %s cannot be opened (%w): create its folder, permit writing, or name another file in LogDestination", path, err)
	}
	return s, nil
}

func (s *fileSink) begin() error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.bytes = f, info.Size()
	return nil
}

func (s *fileSink) describe() string { return s.path }

func (s *fileSink) Close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}

func (s *fileSink) write(l Line) error {
	line := l.String() + "\n"
	if s.bytes > 0 && s.bytes+int64(len(line)) > s.maxBytes {
		if err := s.turnOver(); err != nil {
			return err
		}
	}
	if s.file == nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	n, err := s.file.WriteString(line)
	s.bytes += int64(n)
	return err
}

func (s *fileSink) turnOver() error {
	if err := s.Close(); err != nil {
		return err
	}
	old, err := s.archived()
	if errors.Is(err, fs.ErrNotExist) {
		return s.begin()
	}
	if err != nil {
		return err
	}
	next := 1
	if len(old) > 0 {
		next = old[len(old)-1] + 1
	}
	switch err := os.Rename(s.path, s.archive(next)); {
	case errors.Is(err, fs.ErrNotExist): // somebody took the file away
	case err != nil:
		return err
	default:
		old = append(old, next)
	}
	if s.maxFiles > 0 {
		for len(old) > s.maxFiles-1 {
			if err := os.Remove(s.archive(old[0])); err != nil {
				return err
			}
			old = old[1:]
		}
	}
	return s.begin()
}

func (s *fileSink) archive(n int) string { return s.path + "." + strconv.Itoa(n) }

// archived are the numbers of the files that were turned over, in ascending order.
func (s *fileSink) archived() ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	prefix := filepath.Base(s.path) + "."
	var numbers []int
	for _, e := range entries {
		if digits, found := strings.CutPrefix(e.Name(), prefix); found {
			if n, err := strconv.Atoi(digits); err == nil && n > 0 {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}
