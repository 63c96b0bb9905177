package archtest

import (
	"fmt"
	"strings"
)

// place is where a package stands in the design.
type place struct {
	layer int
	pure  bool // part of the deterministic core, or a support that the core uses: purity.go applies
}

// support marks a small package that anybody may import and that imports only other supports.
const support = -1

// firstLayerOfTheWorld is the lowest layer that may touch threads, sockets, files and clocks.
const firstLayerOfTheWorld = 5

// layerOfChecks has what stands beside the house: tests with real processes, and these checks.
const layerOfChecks = 9

// layers is the design's table. Imports go downward only, never sideways; a package that is missing here
// fails the test. What stands below firstLayerOfTheWorld is pure.
var layers = map[string]place{
	"internal/invariant": {support, true},
	"internal/exitcode":  {support, true},
	"internal/event":     {support, true},
	"internal/version":   {support, true},
	"internal/pool":      {support, true},
	"internal/rowhash":   {support, true},
	"internal/ndberror":  {support, true},
	"internal/options":   {support, false},

	"internal/signal": {layer: 0},

	"config":           {layer: 1},
	"internal/schema":  {layer: 1},
	"internal/store":   {layer: 1},
	"internal/durable": {layer: 1},

	"internal/kernel":            {layer: 2},
	"internal/kernel/kerneltest": {layer: 3},
	"internal/outcome":           {layer: 2},
	"internal/epoch":             {layer: 2},
	"internal/view":              {layer: 2},

	"internal/membership":   {layer: 3},
	"internal/distribution": {layer: 3},
	"internal/dictionary":   {layer: 3},
	"internal/manager":      {layer: 3},
	"internal/coordinator":  {layer: 3},
	"internal/ldm":          {layer: 3},
	"internal/client":       {layer: 3},
	"internal/arbitrator":   {layer: 3},

	"internal/datanode": {layer: 4},

	"internal/host": {layer: 5},
	"internal/sim":  {layer: 5},

	"internal/mgm/wire":        {layer: 5},
	"internal/mgm/frames":      {layer: 5},
	"internal/mgm/mgmclient":   {layer: 5},
	"internal/mgm/clusterlog":  {layer: 5},
	"internal/mgm/configstore": {layer: 5},

	"internal/mgm/mgmd":   {layer: 6},
	"internal/mgm/shell":  {layer: 6},
	"internal/mgm/waiter": {layer: 6},
	"ndb":                 {layer: 6},

	"internal/mgm":              {layer: 7},
	"internal/mgm/mgmtest":      {layer: 7},
	"internal/bench/flexasynch": {layer: 7},
	"internal/bench/matrix":     {layer: 7},
	"internal/bench/failover":   {layer: 7},
	"internal/tabletool":        {layer: 7},
	"internal/configtool":       {layer: 7},
	"internal/noded":            {layer: 7},
	"internal/up":               {layer: 7},

	"cmd/cohort": {layer: 8},

	"internal/archtest":    {layer: layerOfChecks},
	"internal/sim/mutants": {layer: layerOfChecks},
	"internal/e2e":         {layer: layerOfChecks},
	"internal/e2e/cluster": {layer: layerOfChecks},
}

// sideways are the imports inside one layer that the design allows, each with its reason.
var sideways = map[[2]string]string{
	{"internal/e2e/cluster", "internal/e2e"}:        "both run real processes; one builds the binary for both",
	{"internal/store", "internal/schema"}:           "a fragment keeps rows, and a row's bytes are the schema's business",
	{"internal/mgm/mgmclient", "internal/mgm/wire"}: "the library sends requests, wire is how they look",
}

// outside are the modules that may be imported beyond the standard library, with the packages that may do so.
var outside = map[string][]string{
	"github.com/peterh/liner":           {"internal/mgm/shell"}, // the prompt of ndb_mgm: history, completion
	"github.com/anishathalye/porcupine": {"internal/sim"},       // decides whether a history is linearizable
}

// Layers checks the imports of all packages against the table.
func (t *Tree) Layers() []Finding {
	var found []Finding
	for _, p := range t.Packages {
		found = append(found, t.layersOf(p)...)
	}
	return found
}

func (t *Tree) layersOf(p *Package) []Finding {
	from := p.Path()
	own, ok := layers[from]
	if !ok {
		return []Finding{{from, "layer", "the package stands in no layer",
			"every package has its place in the design: enter it in internal/archtest/layers.go and in ARCHITECTURE.md"}}
	}
	var found []Finding
	complain := func(what, reason string) { found = append(found, Finding{from, "layer", what, reason}) }
	for _, path := range p.Imports {
		imported, known := t.all[path]
		if strings.HasPrefix(path, Module+"/") {
			to := strings.TrimPrefix(path, Module+"/")
			if what, reason := judge(from, own, to); what != "" {
				complain(what, reason)
			}
			continue
		}
		if known && !imported.Standard && imported.Module != nil && !mayUse(imported.Module.Path, from) {
			complain("imports "+path+" of module "+imported.Module.Path,
				"a dependency is a decision: enter the module and who may use it in internal/archtest/layers.go, and why in docs")
		}
	}
	return found
}

// judge says what is wrong with one package importing another of the module, or returns "".
func judge(from string, own place, to string) (what, reason string) {
	target, ok := layers[to]
	switch {
	case !ok:
		return "imports " + to + ", which stands in no layer", "enter it in internal/archtest/layers.go"
	case isPure(own) && !isPure(target):
		return "imports " + to, "the deterministic core imports only what is deterministic itself: what touches the world stands above it and reaches it by signals"
	case target.layer == support:
		return "", ""
	case own.layer == support:
		return "imports " + to, "a support is used by every layer, so it may know none of them"
	case target.layer > own.layer:
		return fmt.Sprintf("imports %s, from layer %d up to layer %d", to, own.layer, target.layer),
			"imports go downward only, so that a layer can be understood and tested without those above it"
	case target.layer == own.layer && sideways[[2]string{from, to}] == "":
		return fmt.Sprintf("imports %s, sideways in layer %d", to, own.layer),
			"packages of one layer know each other only through signals or a layer below; an exception needs an entry with its reason in internal/archtest/layers.go"
	}
	return "", ""
}

func isPure(p place) bool {
	return p.pure || (p.layer != support && p.layer < firstLayerOfTheWorld)
}

func mayUse(module, from string) bool {
	for _, allowed := range outside[module] {
		if allowed == from {
			return true
		}
	}
	return false
}
