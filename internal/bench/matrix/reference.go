package matrix

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed ndb.tsv
var ndbTable string

// reference is what NDB needs for a phase of a run; nil: not known.
type reference struct {
	mean, best   *float64 // operations per second
	node, client *float64 // µs of CPU per operation
}

// key names a phase of a run.
type key struct{ run, phase string }

// readReference reads the table of NDB's figures.
func readReference(table string) (map[key]reference, error) {
	all := map[key]reference{}
	var header []string
	for n, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if header == nil {
			header = fields
			continue
		}
		if len(fields) != 6 {
			return nil, fmt.Errorf("line %d: %d fields, not 6", n+1, len(fields))
		}
		var numbers [4]*float64
		for i, text := range fields[2:] {
			if text == "-" {
				continue
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", n+1, header[i+2], err)
			}
			numbers[i] = &v
		}
		all[key{fields[0], fields[1]}] = reference{numbers[0], numbers[1], numbers[2], numbers[3]}
	}
	return all, nil
}
