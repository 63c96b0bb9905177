package flexasynch

import (
	"fmt"
	"io"
	"strings"
)

// usage prints what the program takes.
func usage(w io.Writer) {
	fmt.Fprint(w, `Usage: flexAsynch [options]

The benchmark of the asynchronous record API: phases of inserts, reads, updates, reads and deletes, with the rate
of each. Options are written with one dash or two; a value is the next word or stands behind '='.
`)
	for _, g := range optionGroups {
		fmt.Fprintf(w, "\n%s:\n", g.heading)
		for _, o := range g.options {
			const column = 24
			dash := "-"
			if strings.Contains(o.name, "-") || o.name == "json" || o.name == "help" {
				dash = "--"
			}
			word := strings.TrimSuffix("  "+dash+o.name+" "+o.value, " ")
			if len(word) > column-2 {
				fmt.Fprintln(w, word)
				word = ""
			}
			for _, line := range strings.Split(o.help, "\n") {
				fmt.Fprintf(w, "%-*s%s\n", column, word, line)
				word = ""
			}
		}
	}
	fmt.Fprint(w, `
Exit status: 0 when every operation succeeded and every row that was read was right; 1 when not, or when the cluster
could not be used; 2 when the options are wrong; 130 when interrupted.

Examples:
  flexAsynch -ndbrecord -temp -t 8 -p 512 -r 5 -a 2
  flexAsynch -create_table && flexAsynch -insert && flexAsynch -read -execution_time 60 && flexAsynch -drop_table
  cohort up --ephemeral --data-nodes 1 --run 'flexAsynch -ndbrecord -temp -t 8 -p 512 -a 2 --json figures.json'
`)
}
