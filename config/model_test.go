package config

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

// sample is a configuration with something of everything.
const sample = `[SYSTEM]
Name=prod
ConfigGenerationNumber=3
PrimaryMGMNode=49
[MGM]
HostName=127.0.0.1
[DB DEFAULT]
Diskless=1
DataMemory=1G
[DB]
HostName=127.0.0.1
ServerPort=4001
[DB]
HostName=127.0.0.2
[DB]
NodeGroup=65536
[API]
[TCP DEFAULT]
SendBufferMemory=4M
[TCP]
NodeId1=2
NodeId2=1
HostName1=127.0.0.12
SendBufferMemory=8M
TcpBind_INADDR_ANY=1
`

func TestNodeGroups(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	if got := c.NodeGroups(); !reflect.DeepEqual(got, [][]int{{1, 2}}) {
		t.Error(got)
	}
	if c.Node(3).NodeGroup != NoNodeGroup || c.Replicas() != 2 {
		t.Errorf("node 3 is in group %d", c.Node(3).NodeGroup)
	}
	c, _ = mustParse(t, "[MGM]\n[DB]\nNodeGroup=1\n[DB]\n[DB]\n[DB]\nNodeGroup=0", Options{})
	if got := c.NodeGroups(); !reflect.DeepEqual(got, [][]int{{2, 4}, {1, 3}}) {
		t.Error(got)
	}
}

func TestLinksInherit(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	l := c.Link(2, 1)
	if l.A != 1 || l.B != 2 || l.HostName(2) != "127.0.0.12" || l.HostName(1) != "127.0.0.1" || l.Int("SendBufferMemory") != 8<<20 || !l.BindAny() {
		t.Errorf("%+v", l)
	}
	l = c.Link(1, 50)
	if l.Int("SendBufferMemory") != 4<<20 || l.Int("ReceiveBufferMemory") != 2<<20 || l.BindAny() || l.HostName(50) != "" {
		t.Errorf("%+v", l)
	}
	c, _ = mustParse(t, "[MGM]\n[DB]\nNoOfReplicas=1\nTcpBind_INADDR_ANY=1\n[API]", Options{})
	if !c.Link(50, 1).BindAny() {
		t.Error("a node's TcpBind_INADDR_ANY does not reach its link")
	}
}

func TestBinaryForm(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	checkRoundTrip(t, c)
	data, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnmarshalBinary(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "prod" || got.Generation != 3 || got.system.Int("PrimaryMGMNode") != 49 {
		t.Errorf("%q %d", got.Name, got.Generation)
	}
	for i := range got.Nodes {
		a, b := got.Nodes[i], c.Nodes[i]
		if a.ID != b.ID || a.Type != b.Type || a.HostName != b.HostName || a.NodeGroup != b.NodeGroup {
			t.Errorf("%+v became %+v", b, a)
		}
	}
	got.Name, got.Generation = "other", 4
	if again, _ := got.MarshalBinary(); bytes.Equal(again, data) {
		t.Error("name and generation are not stored")
	}
	checkRoundTrip(t, got)
}

// TestDamagedBytesAreRefused turns every bit, cuts at every length, and lies about counts under a right checksum.
func TestDamagedBytesAreRefused(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	data, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := 0; bit < 8; bit++ {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			if _, err := UnmarshalBinary(bad); err == nil {
				t.Fatalf("bit %d of byte %d", bit, i)
			}
		}
		if _, err := UnmarshalBinary(data[:i]); err == nil {
			t.Fatalf("cut at %d", i)
		}
	}
	for i := binaryHeader; i < len(data)-4; i++ {
		bad := bytes.Clone(data)
		bad[i] = 0xff
		binary.LittleEndian.PutUint32(bad[len(bad)-4:], crc32.Checksum(bad[:len(bad)-4], castagnoli))
		if got, err := UnmarshalBinary(bad); err == nil && got.Text() == c.Text() {
			t.Fatalf("byte %d makes no difference", i)
		}
	}
	bad := bytes.Clone(data)
	bad[4] = 2
	if _, err := UnmarshalBinary(bad); err == nil || !strings.Contains(err.Error(), "format 2, and this program reads 1") {
		t.Error(err)
	}
	if _, err := UnmarshalBinary(data[:len(data)-5]); !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

func TestNamesThatNoFileCouldHaveAreNotStored(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	for _, name := range []string{"two\nlines", strings.Repeat("x", maxValueBytes+1)} {
		c.Name = name
		if _, err := c.MarshalBinary(); err == nil || !strings.Contains(err.Error(), "[SYSTEM] Name cannot be") {
			t.Error(err)
		}
	}
	if _, _, err := Parse([]byte("[MGM]\nDataDir="+strings.Repeat("x", maxValueBytes+1)), Options{}); err == nil || !strings.Contains(err.Error(), "DataDir is 16385 bytes long") {
		t.Error(err)
	}
}

func TestDiff(t *testing.T) {
	c, _ := mustParse(t, sample, Options{})
	if d := Diff(c, c); len(d) != 0 {
		t.Errorf("to itself: %v", d)
	}
	for _, tc := range []struct {
		old, new string // replacement in the sample
		want     []string
	}{
		{"Name=prod", "Name=test", []string{"[SYSTEM] Name: prod -> test (needs system restart)"}},
		{"PrimaryMGMNode=49", "", []string{"[SYSTEM] PrimaryMGMNode: 49 -> 0 (needs nothing)"}},
		{"DataMemory=1G", "DataMemory=2G\nRedoBuffer=1M", []string{
			"[NDBD] 1 DataMemory: 1G -> 2G (needs node restart)", "[NDBD] 1 RedoBuffer: 32M -> 1M (needs nothing)",
			"[NDBD] 2 DataMemory: 1G -> 2G (needs node restart)", "[NDBD] 2 RedoBuffer: 32M -> 1M (needs nothing)",
			"[NDBD] 3 DataMemory: 1G -> 2G (needs node restart)", "[NDBD] 3 RedoBuffer: 32M -> 1M (needs nothing)"}},
		{"Diskless=1", "Diskless=1\nNoOfReplicas=2\nStringMemory=5", nil},
		{"ServerPort=4001", "NodeGroup=0", []string{"[NDBD] 1 ServerPort: 4001 -> none (needs node restart)"}},
		{"Diskless=1", "Diskless=1\nNoOfReplicas=1", []string{
			"[NDBD] 1 NoOfReplicas: 2 -> 1 (needs initial system restart)",
			"[NDBD] 2 NoOfReplicas: 2 -> 1 (needs initial system restart)", "[NDBD] 2 Nodegroup: 0 -> 1 (needs initial system restart)",
			"[NDBD] 3 NoOfReplicas: 2 -> 1 (needs initial system restart)"}},
		{"NodeGroup=65536", "[DB]", []string{"[NDBD] 3 Nodegroup: 65536 -> 1 (needs node restart)", "[NDBD] 4 NodeId: none -> 4 (needs node restart)"}},
		{"[DB]\nNodeGroup=65536\n", "[API]\n", []string{"[NDBD] 3 NodeId: 3 -> none (needs initial system restart)", "[API] 51 NodeId: none -> 51 (needs node restart)"}},
		{"SendBufferMemory=4M", "", []string{"[TCP DEFAULT] SendBufferMemory: 4M -> 2M (needs node restart)"}},
		{"SendBufferMemory=8M", "Group=4", []string{"[TCP] 1-2 Group: 55 -> 4 (needs nothing)", "[TCP] 1-2 SendBufferMemory: 8M -> 4M (needs node restart)"}},
		{"NodeId1=2", "NodeId1=50", []string{
			"[TCP] 1-2 HostName2: 127.0.0.12 -> none (needs node restart)", "[TCP] 1-2 SendBufferMemory: 8M -> 4M (needs node restart)", "[TCP] 1-2 TcpBind_INADDR_ANY: true -> false (needs node restart)",
			"[TCP] 1-50 HostName2: none -> 127.0.0.12 (needs node restart)", "[TCP] 1-50 SendBufferMemory: 4M -> 8M (needs node restart)", "[TCP] 1-50 TcpBind_INADDR_ANY: false -> true (needs node restart)"}},
	} {
		text := strings.Replace(sample, tc.old, tc.new, 1)
		if text == sample {
			t.Fatalf("%q is not in the sample", tc.old)
		}
		after, _ := mustParse(t, text, Options{})
		var got []string
		for _, change := range Diff(c, after) {
			got = append(got, change.String())
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q for %q:\ngot  %q\nwant %q", tc.new, tc.old, got, tc.want)
		}
	}
}

func TestConnectString(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "localhost:1186",
		"nodeid=5":                          "nodeid=5,localhost:1186",
		"h1":                                "h1:1186",
		"h1:2000,h2":                        "h1:2000,h2:1186",
		"NodeId=5,h1;h2:3":                  "nodeid=5,h1:1186,h2:3",
		" host=h1:7 h2 ":                    "h1:7,h2:1186",
		"bind-address=10.0.0.1,h1,h2":       "bind-address=10.0.0.1,h1:1186,h2:1186",
		"h1,bind-address=10.0.0.1:9,h2:5":   "h1:1186,bind-address=10.0.0.1:9,h2:5",
		"[::1]:1200,fe80::1,[::2]":          "[::1]:1200,[fe80::1]:1186,[::2]:1186",
		"nodeid=255,bind-address=a,b:65535": "nodeid=255,bind-address=a,b:65535",
	} {
		c, err := ParseConnectString(text)
		if err != nil || c.String() != want || len(c.Servers) != len(c.Binds) || len(c.Servers) == 0 {
			t.Errorf("%q: %q, %v", text, c.String(), err)
			continue
		}
		if again, err := ParseConnectString(c.String()); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%q: %+v read back as %+v, %v", text, c, again, err)
		}
	}
	for text, want := range map[string]string{
		"nodeid=0":           "node id of 1 to 255",
		"nodeid=256,h":       "node id of 1 to 255",
		"nodeid=1,nodeid=2":  "nodeid twice",
		"h:0":                "port of 1 to 65535",
		"h:65536":            "port of 1 to 65535",
		"h:":                 "HOST or HOST:PORT",
		":1186":              "HOST or HOST:PORT",
		"[::1":               "HOST or HOST:PORT",
		"[::1]1186":          "HOST or HOST:PORT",
		"[::1]:":             "HOST or HOST:PORT",
		"h!x":                "HOST or HOST:PORT",
		"nodid=4,h":          "write nodeid=N",
		"bind-address=h:x,h": "HOST:PORT",
	} {
		if _, err := ParseConnectString(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLogDestination(t *testing.T) {
	def := LogDestination{MaxSize: 1000000, MaxFiles: 6}
	for text, want := range map[string][]LogDestination{
		"":                               {def},
		"CONSOLE":                        {{Console: true}},
		"file":                           {def},
		"SYSLOG":                         {{Syslog: true, Facility: "user"}},
		"SYSLOG:facility=LOCAL3;CONSOLE": {{Syslog: true, Facility: "local3"}, {Console: true}},
		"CONSOLE;FILE:filename=c.log,maxsize=2M,maxfiles=3": {{Console: true}, {FileName: "c.log", MaxSize: 2 << 20, MaxFiles: 3}},
	} {
		if got, err := ParseLogDestination(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"SYSLOG:facility=disk": "write one of auth, authpriv",
		"SYSLOG:maxsize=1M":    "write facility=NAME",
		"FILE:maxsize=1":       "maxsize of 4096 or more",
		"FILE:filename=":       "write a file name",
		"FILE:name=x":          "write filename, maxsize and maxfiles",
		"CONSOLE:x":            "write CONSOLE alone",
		"TAPE":                 "write CONSOLE, SYSLOG",
		"CONSOLE;":             "write CONSOLE, SYSLOG",
	} {
		if _, err := ParseLogDestination(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestLargestCluster fills every id, with a [TCP] section for each pair of data nodes' neighbours.
func TestLargestCluster(t *testing.T) {
	var b strings.Builder
	b.WriteString("[DB DEFAULT]\nNoOfReplicas=2\nDiskless=1\n[MGM]\nHostName=m\n")
	for i := 0; i < 144; i++ {
		fmt.Fprintf(&b, "[DB]\nHostName=d%d\n", i)
	}
	for i := 0; i < 110; i++ {
		b.WriteString("[API]\n")
	}
	for i := 1; i < 144; i++ {
		fmt.Fprintf(&b, "[TCP]\nNodeId1=%d\nNodeId2=%d\nSendBufferMemory=%dM\n", i+1, i, i)
	}
	c, _ := mustParse(t, b.String(), Options{})
	checkRoundTrip(t, c)
	if len(c.Nodes) != 255 || len(c.NodeGroups()) != 72 || c.Node(255) == nil || c.Node(145).Type != ManagementNode || c.Link(100, 99).Int("SendBufferMemory") != 99<<20 {
		t.Errorf("%d nodes", len(c.Nodes))
	}
}

func TestErrorsAreFoundByTheirType(t *testing.T) {
	_, _, err := Parse([]byte("[DB]\nDataMemory=1"), Options{FileName: "c.ini"})
	var e *Error
	if !errors.As(err, &e) || e.File != "c.ini" || e.Line != 2 || e.Section != "DB" || e.Parameter != "DataMemory" || e.Suggestion != "write 1M or more" {
		t.Errorf("%#v", err)
	}
	if err.Error() != `c.ini:2: [DB] DataMemory is "1", below its range of 1M to 16384G: write 1M or more` {
		t.Error(err)
	}
	if _, _, err := Parse(make([]byte, maxFileBytes+1), Options{FileName: "c.ini"}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}
