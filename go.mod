module github.com/cohortdb/cohort

go 1.26.0
