package impure

import (
	"maps"
	"slices"
)

var counter int

var table = [4]int{1, 2, 3, 4}

var settings struct{ size int }

func init() { table[3] = 5; register(1) }

// register is called at start only, so it may fill the table; both is called later as well.
func register(n int) { table[0] = n; both() }

func both() { table[2] = 1 } // want: package state

var filled = fill()

func fill() bool { settings.size = 4; return true }

type registry struct{}

func (registry) init() { table[0] = 1 } // want: package state

func goroutines(work func()) {
	go work() // want: go
}

func channels(c chan int) int { // want: channel
	c <- 1        // want: channel
	for range c { // want: channel
	}
	select { // want: select
	default:
	}
	return <-c // want: channel
}

func order(m map[int]int) int {
	sum := 0
	for _, v := range m { // want: map order
		sum += v
	}
	sorted := slices.Sorted(maps.Keys(m)) // want: map order
	for range sorted {
		sum++
	}
	for range maps.All(m) { // want: map order
		sum++
	}
	return sum + len(m)
}

type anyMap interface{ ~map[string]int }

func generic[M anyMap](m M) {
	for range m { // want: map order
	}
}

func State() int {
	counter++         // want: package state
	table[1] = 7      // want: package state
	settings.size = 1 // want: package state
	for counter = range 3 /* want: package state */ {
	}
	local := table
	local[0] = 9
	both()
	counter := 1
	counter++
	return counter + local[0]
}
