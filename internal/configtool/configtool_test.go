package configtool

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/version"
)

const sample = `[system]
Name=shop
[ndb_mgmd]
NodeId=49
HostName=m.example
[ndbd default]
NoOfReplicas=2
DataMemory=200M
[ndbd]
NodeId=1
HostName=a.example
[ndbd]
NodeId=2
HostName=b.example
DataMemory=1G
[mysqld]
NodeId=50
[tcp default]
SendBufferMemory=4M
`

// ask runs ndb_config on the sample and returns its exit status and outputs.
func ask(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.ini")
	if err := os.WriteFile(file, []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, err bytes.Buffer
	status = Main("ndb_config", append(args, "--config-file="+file), nil, &out, &err)
	return status, out.String(), err.String()
}

func TestQueries(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--query=id", "1 2 49 50\n"},
		{"-q nodeid,type,host", "1,ndbd,a.example 2,ndbd,b.example 49,ndb_mgmd,m.example 50,mysqld,\n"},
		{`--query=id,type --fields=: --rows=\n`, "1:ndbd\n2:ndbd\n49:ndb_mgmd\n50:mysqld\n"},
		{`--type=ndbd -f ; -r \t --query=nodegroup,id`, "0;1\t0;2\n"},
		{"--type=ndbd --query=datamemory", "200M 1G\n"},
		{"--nodeid=2 --query=DataMemory,NoOfReplicas", "1G,2\n"},
		{"--host=a.example --query=id", "1\n"},
		{"--host=nowhere --query=id", ""},
		{"--query=id,DataMemory", "1,200M 2,1G 49, 50,\n"},
		{"--type=ndb_mgmd --query=PortNumber", "1186\n"},
		{"--system --query=Name", "shop\n"},
		{"--connections --nodeid=1 --query=NodeId1,NodeId2,SendBufferMemory,type", "1,2,4M,tcp 1,49,4M,tcp 1,50,4M,tcp\n"},
	} {
		status, out, err := ask(t, strings.Fields(c.args)...)
		if status != 0 || out != c.want || strings.Contains(err, "ndb_config: the") {
			t.Errorf("%s: status %d, %q, want %q; %s", c.args, status, out, c.want, err)
		}
	}
}

func TestQueryAllHasEveryParameter(t *testing.T) {
	_, out, _ := ask(t, "--query-all", "--nodeid=2", "-f", "|")
	fields := strings.Split(strings.TrimSuffix(out, "\n"), "|")
	n := 0
	for _, p := range config.Describe() {
		if p.Section == config.SectionNDBD {
			if !strings.HasPrefix(fields[n], p.Name+"=") {
				t.Fatalf("field %d is %q, want %s", n, fields[n], p.Name)
			}
			n++
		}
	}
	if n != len(fields) || !strings.Contains(out, "|DataMemory=1G|") {
		t.Errorf("%d fields of %d parameters: %s", len(fields), n, out)
	}
}

func TestDifferencesFromDefaults(t *testing.T) {
	status, out, _ := ask(t, "--diff-default", "--nodeid=2")
	if status != 0 || !strings.HasPrefix(out, "config of [NDBD] node id 2 that is different from default\nCONFIG_PARAMETER,ACTUAL_VALUE,DEFAULT_VALUE\n") {
		t.Fatalf("status %d, %q", status, out)
	}
	for _, line := range []string{"\nDataMemory,1G,98M\n", "\nHostName,b.example,"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in %s", line, out)
		}
	}
	if strings.Contains(out, "NoOfReplicas") {
		t.Errorf("NoOfReplicas is at its default: %s", out)
	}
}

func TestConfiginfoDescribesEveryParameter(t *testing.T) {
	var text, asXML bytes.Buffer
	if status := Main("ndb_config", []string{"--configinfo"}, nil, &text, &text); status != 0 {
		t.Fatal(text.String())
	}
	if status := Main("ndb_config", []string{"--configinfo", "--xml"}, nil, &asXML, &asXML); status != 0 {
		t.Fatal(asXML.String())
	}
	var root xmlVariables
	if err := xml.Unmarshal(asXML.Bytes(), &root); err != nil {
		t.Fatal(err)
	}
	if root.Text != version.String() || root.Version != version.Number {
		t.Errorf("version %s, %d", root.Text, root.Version)
	}
	n := 0
	for _, s := range root.Sections {
		if !strings.Contains(text.String(), "****** "+s.Name+" ******\n") {
			t.Errorf("no section %s in the text", s.Name)
		}
		for _, p := range s.Params {
			n++
			if !strings.Contains(text.String(), "\n"+p.Name+" ("+p.Type+")\n"+p.Comment+"\n") {
				t.Errorf("no %s in the text", p.Name)
			}
		}
	}
	if n != len(config.Describe()) {
		t.Errorf("%d parameters, want %d", n, len(config.Describe()))
	}
	if !strings.Contains(text.String(), "Default: 98M (Min: 1M, Max: 16384G), in bytes\n") {
		t.Error("DataMemory's range is not told")
	}
}

func TestFaultsAreToldAndFail(t *testing.T) {
	for _, c := range []struct {
		args, says string
		status     int
	}{
		{"", "nothing is asked", exitUsage},
		{"--query=id --query-all", "exclude one another", exitUsage},
		{"--query=id --system --nodes", "exclude one another", exitUsage},
		{"--query=id --xml", "--xml belongs to --configinfo", exitUsage},
		{"--query=id --type=oracle", "--type=oracle is no type", exitUsage},
		{"--diff-default --system", "is about nodes", exitUsage},
		{"--query=id --config-from-node=1", "asks a server", exitUsage},
		{"--query=id loose", `"loose" is no option`, exitUsage},
		{"--nonsense", "nonsense", exitUsage},
		{"--query=id,Nonsense", `a parameter "Nonsense"`, exitFailed},
		{"--query=id --nodeid=9", "no node 9", exitFailed},
		{"--query=id --config-binary-file=x", "not supported yet", exitFailed},
	} {
		status, out, err := ask(t, strings.Fields(c.args)...)
		if status != c.status || out != "" || !strings.HasPrefix(err, "ndb_config: ") || !strings.Contains(err, c.says) {
			t.Errorf("%s: status %d, %q, %q", c.args, status, out, err)
		}
	}
	var out, err bytes.Buffer
	if status := Main("ndb_config", []string{"--query=id", "--config-file=/nowhere/config.ini"}, nil, &out, &err); status != exitFailed || !strings.Contains(err.String(), "cannot be read") {
		t.Errorf("status %d, %q", status, err.String())
	}
	// Nobody listens on port 1 of the loopback address.
	if status := Main("ndb_config", []string{"--query=id", "-c", "127.0.0.1:1"}, nil, &out, &err); status != exitFailed || !strings.Contains(err.String(), "no management server answers") {
		t.Errorf("status %d, %q", status, err.String())
	}
	if status := Main("ndb_config", []string{"--query=id", "--mycnf"}, nil, &out, &err); status != exitUsage {
		t.Errorf("--mycnf alone: status %d", status)
	}
}

func TestTheOtherFormOfConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.cnf")
	text := "[cluster_config]\nndb_mgmd=m\nndbd=d\nmysqld=,\nNoOfReplicas=1\nDataMemory=20M\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, err bytes.Buffer
	status := Main("ndb_config", []string{"--mycnf", "--config-file", file, "--query=host,DataMemory", "--type=ndbd"}, nil, &out, &err)
	if status != 0 || out.String() != "d,20M\n" {
		t.Fatalf("status %d, %q, %q", status, out.String(), err.String())
	}
}

func TestHelp(t *testing.T) {
	var out, err bytes.Buffer
	if status := Main("ndb_config", []string{"--help"}, nil, &out, &err); status != 0 || !strings.Contains(out.String(), "Examples:") {
		t.Fatalf("status %d, %q", status, err.String())
	}
	out.Reset()
	if status := Main("ndb_config", []string{"-V"}, nil, &out, &err); status != 0 || out.String() != "ndb_config cohort-"+version.String()+"\n" {
		t.Fatalf("status %d, %q", status, out.String())
	}
}
