package config

import (
	"path/filepath"
	"testing"
)

// seedCases gives a fuzz target the inputs of the test cases of one form.
func seedCases(f *testing.F, mycnf bool, add func(data []byte)) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no cases: %v", err)
	}
	for _, path := range files {
		for _, tc := range readCases(f, path) {
			if tc.parseOptions(f).MyCnf == mycnf {
				add([]byte(tc.input))
			}
		}
	}
}

// fuzzParse demands that any file is refused or survives its round trips.
func fuzzParse(f *testing.F, mycnf bool) {
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Parse(data, Options{FileName: "fuzz", MyCnf: mycnf})
		if (c == nil) != (err != nil) {
			t.Fatalf("configuration %v beside error %v", c, err)
		}
		if err == nil {
			checkRoundTrip(t, c)
			if d := Diff(c, c); len(d) != 0 {
				t.Fatalf("differs from itself: %v", d)
			}
		}
	})
}

func FuzzParseINI(f *testing.F) {
	seedCases(f, false, func(data []byte) { f.Add(data) })
	f.Add([]byte(sample))
	fuzzParse(f, false)
}

func FuzzParseMyCnf(f *testing.F) {
	seedCases(f, true, func(data []byte) { f.Add(data) })
	f.Add([]byte("[cluster_config]\nndbd=,\nndb_mgmd=\nndbapi=,,\nmysqld=a,b"))
	fuzzParse(f, true)
}

func FuzzUnmarshal(f *testing.F) {
	add := func(mycnf bool) func(data []byte) {
		return func(data []byte) {
			if c, _, err := Parse(data, Options{MyCnf: mycnf}); err == nil {
				if b, err := c.MarshalBinary(); err == nil {
					f.Add(b[binaryHeader : len(b)-4])
				}
			}
		}
	}
	seedCases(f, false, add(false))
	seedCases(f, true, add(true))
	add(false)([]byte(sample))
	f.Fuzz(func(t *testing.T, body []byte) {
		// The bytes as they are, which a checksum refuses, and as a body with a right one.
		if _, err := UnmarshalBinary(body); err == nil && string(body[:4]) != binaryMagic {
			t.Fatal("accepted without a header")
		}
		c, err := UnmarshalBinary(frame(body))
		if err != nil {
			return
		}
		checkRoundTrip(t, c)
	})
}
