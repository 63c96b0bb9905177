package sim

import "fmt"

// Delay is how long something takes: a floor, what is added to it, and now and then much more. Times in nanoseconds
// of virtual time.
type Delay struct {
	Floor int64
	Mean  int64 // of the exponential part
	// RareOf in RareIn signals take up to Rare more; RareIn 0: none do.
	RareOf, RareIn int
	Rare           int64
}

func (d *Delay) draw(r *Random) int64 {
	t := d.Floor + r.Exponential(d.Mean)
	if d.RareIn > 0 && r.Chance(d.RareOf, d.RareIn) {
		t += r.Below(d.Rare + 1)
	}
	return t
}

func (d Delay) String() string {
	s := fmt.Sprintf("%s+%s", ns(d.Floor), ns(d.Mean))
	if d.RareIn > 0 {
		s += fmt.Sprintf("+%s:%d/%d", ns(d.Rare), d.RareOf, d.RareIn)
	}
	return s
}

const (
	microsecond = int64(1_000)
	millisecond = int64(1_000_000)
	second      = int64(1_000_000_000)
)

// ns prints virtual time in the largest unit that keeps it whole, or in microseconds.
func ns(t int64) string {
	switch {
	case t >= second && t%second == 0:
		return fmt.Sprintf("%ds", t/second)
	case t >= millisecond && t%millisecond == 0:
		return fmt.Sprintf("%dms", t/millisecond)
	case t%microsecond == 0:
		return fmt.Sprintf("%dus", t/microsecond)
	}
	return fmt.Sprintf("%d.%03dus", t/microsecond, t%microsecond)
}

// Weather is how a network behaves in a run: how long signals travel and threads take. Each run draws its own, and
// within it each link and each thread.
type Weather struct {
	Link   Delay // between nodes
	Inside Delay // between threads of a node
	Self   Delay // from a thread to itself
	Work   Delay // executing one signal
	Wake   Delay // from a signal's arrival at an idle thread to its execution
	Lazy   Delay // how long clients keep what they have to send
	// Batch: up to so many signals are executed before what they sent leaves the thread.
	Batch int
	// Slow of 8 links, threads and nodes are Factor times slower than the rest.
	Slow, Factor int
}

// drawWeather draws one of a few kinds of networks, from one without any delay, where only ties decide, to one where
// every link is different and now and then something takes ages.
func drawWeather(r *Random) Weather {
	w := Weather{Batch: 1, Factor: 1, Work: Delay{Floor: 200, Mean: 300}}
	switch r.Int(5) {
	case 0: // everything at once: orders are random, times hardly matter
		w.Link = Delay{Floor: 1000}
		w.Inside = Delay{Floor: 100}
	case 1: // a fast network
		w.Link = Delay{Floor: 20 * microsecond, Mean: 10 * microsecond}
		w.Inside = Delay{Floor: 500, Mean: microsecond}
	case 2: // much jitter: orders between links vary widely
		w.Link = Delay{Floor: 5 * microsecond, Mean: int64(r.Between(50, 500)) * microsecond}
		w.Inside = Delay{Mean: 50 * microsecond}
		w.Self = Delay{Mean: Pick(r, 0, 5*microsecond)}
	case 3: // stalls
		w.Link = Delay{Floor: 20 * microsecond, Mean: 20 * microsecond, RareOf: 1, RareIn: 500, Rare: 10 * millisecond}
		w.Inside = Delay{Mean: 2 * microsecond, RareOf: 1, RareIn: 500, Rare: 2 * millisecond}
		w.Work.RareOf, w.Work.RareIn, w.Work.Rare = 1, 5000, int64(r.Between(1, 20))*millisecond
	case 4: // threads slower than the network
		w.Link = Delay{Floor: 5 * microsecond, Mean: 5 * microsecond}
		w.Inside = Delay{Floor: 1000}
		w.Work = Delay{Floor: 500, Mean: int64(r.Between(1, 20)) * microsecond}
		w.Wake = Delay{Mean: int64(r.Between(0, 200)) * microsecond}
	}
	if r.Chance(1, 2) {
		w.Batch = r.Between(2, 32)
	}
	if r.Chance(1, 3) {
		w.Lazy = Delay{Mean: int64(r.Between(1, 200)) * microsecond}
	}
	if r.Chance(1, 3) {
		w.Slow, w.Factor = r.Between(1, 4), r.Between(2, 20)
	}
	return w
}

func (w Weather) String() string {
	return fmt.Sprintf("link=%v inside=%v self=%v work=%v wake=%v lazy=%v batch=%d slow=%d/8x%d",
		w.Link, w.Inside, w.Self, w.Work, w.Wake, w.Lazy, w.Batch, w.Slow, w.Factor)
}

// own draws what one link, thread or node has of a delay.
func (w *Weather) own(r *Random, d Delay) Delay {
	if r.Int(8) < w.Slow {
		d.Floor *= int64(w.Factor)
		d.Mean *= int64(w.Factor)
	}
	return d
}
