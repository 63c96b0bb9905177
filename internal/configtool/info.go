package configtool

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/version"
)

// infoText describes every parameter, section by section.
func infoText() string {
	var b strings.Builder
	last := ""
	for _, p := range config.Describe() {
		if s := p.Section.String(); s != last {
			fmt.Fprintf(&b, "****** %s ******\n\n", s)
			last = s
		}
		fmt.Fprintf(&b, "%s (%s)\n%s\n", p.Name, p.Kind, purpose(&p))
		if p.Mandatory {
			b.WriteString("MANDATORY\n")
		} else {
			def := p.Default
			if def == "" {
				def = "none"
			}
			fmt.Fprintf(&b, "Default: %s", def)
			if p.Min != "" {
				fmt.Fprintf(&b, " (Min: %s, Max: %s)", p.Min, p.Max)
			} else if len(p.Values) > 0 {
				fmt.Fprintf(&b, " (one of %s)", p.Range())
			}
			if unit := p.Unit.String(); unit != "" {
				fmt.Fprintf(&b, ", in %s", unit)
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "A change needs: %s\n\n", p.NeedsNow())
	}
	return b.String()
}

// purpose says what Cohort does with a parameter.
func purpose(p *config.Parameter) string {
	text := p.Does
	if p.Effect != config.Used {
		text = p.Effect.String() + ", because " + p.Because
	}
	if p.Old {
		text += " (deprecated)"
	}
	return text
}

// The elements of --configinfo --xml have the names and attributes that NDB's tool gives them.
type (
	xmlVariables struct {
		XMLName  xml.Name      `xml:"configvariables"`
		Protocol int           `xml:"protocolversion,attr"`
		Text     string        `xml:"ndbversionstring,attr"`
		Version  int           `xml:"ndbversion,attr"`
		Major    int           `xml:"ndbversionmajor,attr"`
		Minor    int           `xml:"ndbversionminor,attr"`
		Build    int           `xml:"ndbversionbuild,attr"`
		Sections []*xmlSection `xml:"section"`
	}
	xmlSection struct {
		Name   string     `xml:"name,attr"`
		Params []xmlParam `xml:"param"`
	}
	xmlParam struct {
		Name      string `xml:"name,attr"`
		Comment   string `xml:"comment,attr"`
		Type      string `xml:"type,attr"`
		Mandatory string `xml:"mandatory,attr,omitempty"`
		Default   string `xml:"default,attr,omitempty"`
		Min       string `xml:"min,attr,omitempty"`
		Max       string `xml:"max,attr,omitempty"`
		Allowed   string `xml:"allowed,attr,omitempty"`
		Old       string `xml:"deprecated,attr,omitempty"`
		Restart   string `xml:"restart,attr,omitempty"`
		Initial   string `xml:"initial,attr,omitempty"`
	}
)

func infoXML() string {
	root := xmlVariables{Protocol: 1, Text: version.String(), Version: version.Number,
		Major: version.Major, Minor: version.Minor, Build: version.Build}
	for _, p := range config.Describe() {
		name := p.Section.String()
		if n := len(root.Sections); n == 0 || root.Sections[n-1].Name != name {
			root.Sections = append(root.Sections, &xmlSection{Name: name})
		}
		x := xmlParam{Name: p.Name, Comment: purpose(&p), Type: p.Kind.String(), Default: p.Default, Min: p.Min, Max: p.Max}
		if p.Mandatory {
			x.Mandatory = "true"
		}
		if len(p.Values) > 0 {
			x.Allowed = p.Range()
		}
		if p.Old {
			x.Old = "true"
		}
		switch needs := p.NeedsNow(); {
		case needs&config.NeedSystemRestart != 0:
			x.Restart = "system"
		case needs&config.NeedNodeRestart != 0:
			x.Restart = "node"
		}
		if p.NeedsNow()&config.NeedInitial != 0 {
			x.Initial = "true"
		}
		s := root.Sections[len(root.Sections)-1]
		s.Params = append(s.Params, x)
	}
	text, err := xml.MarshalIndent(root, "", "  ")
	if err != nil {
		return "" // strings and numbers always have a form in XML
	}
	return string(text) + "\n"
}
