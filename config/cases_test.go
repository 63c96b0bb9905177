package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the goldens: testdata/cases and docs/configuration.md")

// testCase is one configuration file and what becomes of it. In a file of cases it reads
//
//	=== TITLE
//	--- ini|mycnf [map=NAME=ADDRESS,…] [set=NAME=VALUE]…
//	the configuration
//	--- result
//	warning: …, error: …, and the text of a configuration that was accepted
type testCase struct{ title, options, input, result string }

func readCases(t testing.TB, path string) []testCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []testCase
	for _, part := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		title, rest, _ := strings.Cut(part, "\n--- ")
		options, rest, ok := strings.Cut(rest, "\n")
		input, result, found := strings.Cut("\n"+rest, "\n--- result\n")
		if !ok || !found {
			t.Fatalf("%s: case %q is not whole", path, title)
		}
		all = append(all, testCase{title, options, strings.TrimPrefix(input, "\n") + "\n", strings.TrimRight(result, "\n") + "\n"})
	}
	return all
}

func (tc testCase) parseOptions(t testing.TB) Options {
	t.Helper()
	words := strings.Fields(tc.options)
	opt := Options{FileName: "f", MyCnf: words[0] == "mycnf"}
	for _, w := range words[1:] {
		kind, rest, _ := strings.Cut(w, "=")
		name, value, _ := strings.Cut(rest, "=")
		switch kind {
		case "map":
			if opt.HostMap == nil {
				opt.HostMap = map[string]string{}
			}
			opt.HostMap[name] = value
		case "set":
			opt.Overrides = append(opt.Overrides, Setting{name, value})
		default:
			t.Fatalf("unknown option %q", w)
		}
	}
	return opt
}

// run parses the input and puts what happens into words; what was accepted must survive its round trips.
func (tc testCase) run(t *testing.T) string {
	t.Helper()
	c, warnings, err := Parse([]byte(tc.input), tc.parseOptions(t))
	var b strings.Builder
	for _, w := range warnings {
		b.WriteString("warning: " + w.String() + "\n")
	}
	if err != nil {
		for _, e := range err.(Errors) {
			b.WriteString("error: " + e.Error() + "\n")
		}
		if c != nil {
			t.Errorf("%s: a configuration beside an error", tc.title)
		}
		return b.String()
	}
	checkRoundTrip(t, c)
	b.WriteString(c.Text())
	return b.String()
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var b strings.Builder
			for _, tc := range readCases(t, path) {
				got := tc.run(t)
				if got != tc.result && !*update {
					t.Errorf("%s\ngot\n%s\nwant\n%s", tc.title, got, tc.result)
				}
				b.WriteString("=== " + tc.title + "\n--- " + tc.options + "\n" + tc.input + "--- result\n" + got + "\n")
			}
			if *update {
				if err := os.WriteFile(path, []byte(strings.TrimSuffix(b.String(), "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
