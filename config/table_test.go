package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cohortdb/cohort/internal/invariant"
)

// referenceRows reads the list of NDB 8.0's parameters: section, name, status, restart, type, default, min, max.
func referenceRows(t *testing.T) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/config-parameters.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 8 {
			t.Fatalf("%d fields in %q", len(fields), line)
		}
		rows = append(rows, fields)
	}
	return rows
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func TestTableHasEveryRowOfTheReference(t *testing.T) {
	rows := referenceRows(t)
	if all := Describe(); len(all) != len(rows) || len(rows) != 259 {
		t.Errorf("the table has %d rows, the reference %d", len(all), len(rows))
	}
	restarts := map[string]Need{
		"node": NeedNodeRestart, "check_writable": NeedNodeRestart,
		"initial": NeedNodeRestart | NeedInitial, "check_writable|initial": NeedNodeRestart | NeedInitial,
		"system|initial": NeedSystemRestart | NeedInitial, "initial|system": NeedSystemRestart | NeedInitial,
	}
	for _, row := range rows {
		s, ok := sectionNamed(row[0])
		if !ok {
			t.Fatalf("section %q", row[0])
		}
		p := Lookup(s, row[1])
		if p == nil {
			t.Errorf("[%s] %s is not in the table", row[0], row[1])
			continue
		}
		def, low, high := orDash(p.Default), orDash(p.Min), orDash(p.Max)
		if p.Mandatory {
			def = "MANDATORY"
		}
		switch p.Kind {
		case KindBool:
			low, high = "false", "true"
		case KindEnum: // the reference has the values in place of a range; for Arbitration the name of a list of them
			low, high = "-", strings.Join(p.Values, ", ")
			if p.Name == "Arbitration" {
				low, high = "(const char*)arbit_method_typelib", "-"
			}
		}
		if own, ok := departures[p.Name]; ok {
			if def != own {
				t.Errorf("%s: the default is %s, not %s", p.Name, def, own)
			}
			def = row[5]
		}
		got := []string{p.Section.String(), p.Name, p.Kind.String(), def, low, high}
		want := []string{row[0], row[1], row[4], row[5], row[6], row[7]}
		if !slices.Equal(got, want) {
			t.Errorf("table has %q, reference %q", got, want)
		}
		if p.Needs != restarts[row[3]] || p.Directory != strings.Contains(row[3], "check_writable") || p.Old != (row[2] != "used") {
			t.Errorf("[%s] %s needs %v, reference %q", row[0], row[1], p.Needs, row[3])
		}
	}
}

// departures are the defaults that differ from NDB's; the texts of these parameters say so.
var departures = map[string]string{"HeartbeatIntervalDbDb": "250"}

func TestTableSaysWhatCohortDoes(t *testing.T) {
	for _, p := range Describe() {
		why := p.Because
		if p.Effect == Used {
			why = p.Does
		}
		if why == "" || (p.Does != "") == (p.Because != "") || strings.HasSuffix(why, ".") {
			t.Errorf("[%s] %s is %s, because %q, does %q", p.Section, p.Name, p.Effect, p.Because, p.Does)
		}
		for _, a := range p.Aliases {
			if q := Lookup(p.Section, strings.ToUpper(a)); q == nil || q.Name != p.Name {
				t.Errorf("alias %s does not find %s", a, p.Name)
			}
		}
	}
}

// TestEveryParameterIsRead sets each parameter that is not its section's key to its default or an allowed value and
// demands that it is accepted, is seen in the configuration, and warns exactly if it has no effect.
func TestEveryParameterIsRead(t *testing.T) {
	for _, p := range Describe() {
		if p.isOwn() || p.Section == SectionComputer || p.Name == "ExecuteOnComputer" || p.Name == "NoOfReplicas" {
			continue
		}
		value := p.Default
		if value == "" && (p.isNumber() || p.Kind == KindBitmask) {
			value = p.Max
		}
		if value == "" && p.Kind == KindBool {
			value = "true"
		}
		switch p.Name {
		case "Name":
			value = "prod"
		case "Nodegroup":
			value = "0"
		case "HostName", "HostName1", "HostName2":
			value = "127.0.0.9"
		case "ThreadConfig":
			value = "main,ldm,recv,rep"
		case "ConfigGenerationNumber":
			value = "7"
		}
		sections := map[Section]string{
			SectionMGMD: "[NDB_MGMD]\n", SectionNDBD: "[NDBD]\nNoOfReplicas=1\n", SectionAPI: "[API]\n",
			SectionTCP: "[TCP]\nNodeId1=1\nNodeId2=50\n", SectionSHM: "[SHM]\nNodeId1=1\nNodeId2=50\n", SectionSystem: "[SYSTEM]\n",
		}
		sections[p.Section] += p.Name + "=" + value + "\n"
		if p.Name != "Diskless" {
			sections[SectionNDBD] += "Diskless=1\n"
		}
		text := sections[SectionMGMD] + sections[SectionNDBD] + sections[SectionAPI] + sections[SectionTCP] + sections[SectionSHM] + sections[SectionSystem]
		c, warnings := mustParse(t, text, Options{})
		checkRoundTrip(t, c)
		warned := false
		for _, w := range warnings {
			warned = warned || w.Section == p.Section.String() && w.Parameter == p.Name && strings.Contains(w.Text, "no effect")
		}
		if want := p.Effect == NoEffect || p.Name == "NumCPUs"; warned != want {
			t.Errorf("[%s] %s=%s: warned %v, effect %v", p.Section, p.Name, value, warned, p.Effect)
		}
		line := p.Name + "=" + quote(p.format(mustValue(t, &p, value)))
		if !strings.Contains(c.Text(), line+"\n") && p.Section != SectionSHM {
			t.Errorf("%q is not in\n%s", line, c.Text())
		}
	}
}

func mustValue(t *testing.T, p *Parameter, text string) value {
	t.Helper()
	v, c := p.parse(text, false)
	if c.text != "" {
		t.Fatalf("%s=%s %s", p.Name, text, c.text)
	}
	return v
}

// TestEveryRangeIsKept tries the bounds of every number and what lies beyond them.
func TestEveryRangeIsKept(t *testing.T) {
	for _, p := range Describe() {
		if !p.isNumber() {
			continue
		}
		for _, n := range []int64{p.min, p.max} {
			if v, c := p.parse(itoa(int(n)), false); c.text != "" || v.num != n {
				t.Errorf("%s=%d: %s", p.Name, n, c.text)
			}
		}
		for _, n := range []int64{p.min - 1, p.max + 1} {
			isDefault := p.Default != "" && n == p.def.num
			if _, c := p.parse(itoa(int(n)), false); (c.text == "") != isDefault {
				t.Errorf("%s=%d is accepted", p.Name, n)
			} else if !isDefault && (!strings.Contains(c.text, p.Range()) || c.suggestion == "") {
				t.Errorf("%s=%d: %s: %s", p.Name, n, c.text, c.suggestion)
			}
		}
	}
}

func TestAccessors(t *testing.T) {
	c, _ := mustParse(t, "[MGM]\n[DB]\nNoOfReplicas=1\nDataMemory=1G\nArbitration=disabled\nDiskless=1\n[API]", Options{})
	n := c.Node(1)
	if n.Int("DataMemory") != 1<<30 || n.String("DataMemory") != "1G" || !n.IsSet("DataMemory") || n.Int("datamemory") != 1<<30 {
		t.Error("DataMemory")
	}
	if n.String("Arbitration") != "Disabled" || n.Int("Arbitration") != 1 {
		t.Error("Arbitration")
	}
	if n.IsSet("StringMemory") || n.Int("StringMemory") != 5 || n.String("DataDir") != "." || n.String("ServerPort") != "" || n.Int("ServerPort") != 0 {
		t.Error("defaults")
	}
	if n.Bool("EncryptedFileSystem") || !n.Bool("StopOnError") || n.Int("Diskless") != 1 {
		t.Error("bools")
	}
	if c.Node(2) != nil || c.Node(49).Type.String() != "MGM" || c.Node(50).Type.String() != "API" || n.Type.String() != "NDB" || c.Node(49).NodeGroup != -1 {
		t.Error("nodes")
	}
	if c.Link(1, 2) != nil || c.Link(1, 1) != nil || c.Link(50, 1).HostName(1) != "localhost" || c.Link(50, 1).HostName(50) != "" {
		t.Error("links")
	}
	if allocs := testing.AllocsPerRun(100, func() { n.Int("MaxNoOfConcurrentOperations") }); allocs != 0 {
		t.Errorf("Int allocates %v times", allocs)
	}
}

func TestAskingForWhatIsNotIsABug(t *testing.T) {
	c, _ := mustParse(t, "[MGM]\n[DB]\nNoOfReplicas=1\n[API]", Options{})
	n := c.Node(1)
	for name, f := range map[string]func(){
		"unknown":       func() { n.Int("DataMemorie") },
		"other section": func() { n.Int("PortNumber") },
		"text":          func() { n.Int("DataDir") },
		"no bool":       func() { n.Bool("DataMemory") },
		"no data node":  func() { c.Node(50).DataMemory() },
	} {
		func() {
			defer func() {
				var v invariant.Violation
				if err, _ := recover().(error); !errors.As(err, &v) {
					t.Errorf("%s: %v", name, err)
				}
			}()
			f()
		}()
	}
}
