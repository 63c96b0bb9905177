package config

import "strings"

// nearest gives the one of names that takes the fewest typing mistakes to become word.
func nearest(word string, names []string) string {
	best, bestAt := "", 1<<30
	for _, n := range names {
		if d := distance(fold(word), fold(n)); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// didYouMean asks about the nearest of names, if it is near enough for a slip; else it gives the other advice.
func didYouMean(word string, names []string, otherwise string) string {
	n := nearest(word, names)
	if distance(fold(word), fold(n)) > 1+len(word)/4 {
		return otherwise
	}
	return "did you mean " + n + "?"
}

// distance counts the letters to add, drop or change between a and b, a swap of neighbours being one change.
// A letter case, a dash or an underscore is no difference.
func distance(a, b string) int {
	a, b = strings.ReplaceAll(a, "-", "_"), strings.ReplaceAll(b, "-", "_")
	if len(a) > 64 {
		a = a[:64]
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}

// retired are parameters that NDB had once or got after the version that the table follows.
var retired = []struct{ name, suggestion string }{
	{"ApiFailureHandlingTimeout", "delete the line: Cohort follows NDB 8.0.32, which does not have it"},
	{"ByteOrder", "delete the line: NDB dropped it, and Cohort has one byte order"},
	{"DiskCheckpointSpeed", "delete the line: MinDiskWriteSpeed and MaxDiskWriteSpeed took its place"},
	{"DiskCheckpointSpeedInRestart", "delete the line: MaxDiskWriteSpeedOwnRestart took its place"},
	{"MaxNoOfIndexes", "write MaxNoOfOrderedIndexes or MaxNoOfUniqueHashIndexes"},
	{"MaxNoOfSavedEvents", "delete the line: the cluster log keeps events"},
	{"NoOfDiskPagesToDiskAfterRestartACC", "delete the line: MaxDiskWriteSpeed took its place"},
	{"NoOfDiskPagesToDiskAfterRestartTUP", "delete the line: MaxDiskWriteSpeed took its place"},
	{"NoOfDiskPagesToDiskDuringRestartACC", "delete the line: MaxDiskWriteSpeedOwnRestart took its place"},
	{"NoOfDiskPagesToDiskDuringRestartTUP", "delete the line: MaxDiskWriteSpeedOwnRestart took its place"},
	{"RequireCertificate", "delete the line: links cannot be encrypted yet"},
	{"RequireTls", "delete the line: links cannot be encrypted yet"},
	{"SpinMethod", "delete the line: a thread with nothing to do sleeps at once"},
}

// unknownParameter says what to do about a name that is not in the sections where it was looked for.
func unknownParameter(name string, sections ...Section) string {
	for _, r := range retired {
		if fold(r.name) == fold(name) {
			return r.suggestion
		}
	}
	var elsewhere []string
	for s := Section(0); s < sectionCount; s++ {
		if Lookup(s, name) != nil {
			elsewhere = append(elsewhere, "["+s.String()+"]")
		}
	}
	if len(elsewhere) > 0 {
		return "move it to " + strings.Join(elsewhere, " or ")
	}
	var names []string
	for _, s := range sections {
		for i := range tables[s] {
			names = append(names, tables[s][i].Name)
		}
	}
	return didYouMean(name, names, "delete the line, or see docs/configuration.md for the names that there are")
}
