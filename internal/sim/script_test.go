package sim

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the stories in testdata/scripts. `go test ./internal/sim -run TestScripts -rewrite` writes what
// happens now; read it before you keep it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			var s *script
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "cluster":
					nodes, replicas, managers, clients, seed := 2, 2, 1, 1, 1
					d.MaybeScanArgs(t, "nodes", &nodes)
					d.MaybeScanArgs(t, "replicas", &replicas)
					d.MaybeScanArgs(t, "managers", &managers)
					d.MaybeScanArgs(t, "clients", &clients)
					d.MaybeScanArgs(t, "seed", &seed)
					var err error
					if s, err = newScript(scriptOptions(nodes, replicas, managers, clients, uint64(seed))); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(s.x.net.close)
					return strings.Join(s.out, "\n") + "\n"
				case "do":
					told, err := s.run(strings.Split(d.Input, "\n"))
					if err != nil {
						t.Fatalf("%s\n%v", told, err)
					}
					return told + "\n"
				}
				t.Fatalf("unknown command %q", d.Cmd)
				return ""
			})
		})
	}
}
