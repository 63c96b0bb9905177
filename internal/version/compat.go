package version

// The MySQL level whose tools and client protocol Cohort follows; the management protocol reports it beside Number.
const (
	MySQLMajor = 8
	MySQLMinor = 0
	MySQLBuild = 32

	// MySQLNumber packs the level as Number does.
	MySQLNumber = MySQLMajor<<16 | MySQLMinor<<8 | MySQLBuild
)

// Text writes a number as SHOW prints it, "cohort-0.1.0"; 0, the number of a node that was never heard of, is "unknown".
func Text(number uint32) string {
	if number == 0 {
		return "unknown"
	}
	return "cohort-" + Format(number)
}

// Compatible reports whether two versions may form one cluster. Builds only mend faults; a minor version apart is what
// a rolling upgrade needs.
func Compatible(a, b uint32) bool {
	minorA, minorB := int(a>>8&0xff), int(b>>8&0xff)
	return a>>16 == b>>16 && minorA-minorB <= 1 && minorB-minorA <= 1
}
