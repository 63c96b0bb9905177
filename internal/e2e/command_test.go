package e2e

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestOneStaticBinaryAndItsLinks(t *testing.T) {
	binary, err := elf.Open(filepath.Join(Bin(t), "cohort"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v, %v", libraries, err)
	}
	for _, name := range strings.Fields(`ndb_mgmd ndb_mgm ndbd ndbmtd flexAsynch ndb_waiter ndb_desc ndb_show_tables ndb_select_all
		ndb_select_count ndb_delete_all ndb_drop_table ndb_restore ndb_config`) {
		target, err := os.Readlink(filepath.Join(Bin(t), name))
		if err != nil || target != "cohort" {
			t.Errorf("%s leads to %q, %v", name, target, err)
		}
	}
}

func TestEveryToolHasHelpOrSaysWhatIsMissing(t *testing.T) {
	links, err := filepath.Glob(filepath.Join(Bin(t), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		name := filepath.Base(link)
		status, stdout, stderr := Run(t, name, "--help")
		switch {
		case status == 0 && strings.Contains(stdout, "xamples:") && stderr == "":
		case status == 1 && strings.HasPrefix(stderr, name+": not supported yet: "):
		default:
			t.Errorf("%s --help: status %d, %q, %q", name, status, stdout, stderr)
		}
	}
}

func TestUnknownCommandsAndOptionsFail(t *testing.T) {
	for _, command := range []string{"cohort nonsense", "cohort up --nonsense", "cohort up --data-nodes 0", "cohort up --sql-port 3306"} {
		words := strings.Fields(command)
		status, stdout, stderr := Run(t, words[0], words[1:]...)
		if status == 0 || stdout != "" || !strings.HasPrefix(stderr, "cohort") {
			t.Errorf("%s: status %d, %q, %q", command, status, stdout, stderr)
		}
	}
}
