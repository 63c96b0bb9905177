package up

import "testing"

func TestAFileReadsBackAsItWasWritten(t *testing.T) {
	f := &ini{}
	f.add("ndbd default", "DataMemory", "10M", "DataDir", "/a b=c")
	s := f.add("ndbd", "NodeId", "1")
	s.set("nodeid", "2")
	s.set("X", "")
	s.unset("x")
	want := "\n[ndbd default]\nDataMemory=10M\nDataDir=/a b=c\n\n[ndbd]\nNodeId=2\n"
	if got := f.String(); got != want {
		t.Fatalf("%q", got)
	}
	f.comment = "two\nlines"
	again := readINI(f.String())
	if got := again.String(); got != want {
		t.Fatalf("%q", got)
	}
	if got := again.of("NDBD")[0].get("NODEID"); got != "2" {
		t.Fatalf("%q", got)
	}
	if got := again.of("api"); got != nil {
		t.Fatalf("%v", got)
	}
}
