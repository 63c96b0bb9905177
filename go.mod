module github.com/cohortdb/cohort

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.3
	github.com/peterh/liner v1.2.3
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/mattn/go-runewidth v0.0.31 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
