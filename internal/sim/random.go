package sim

import "math/bits"

// Random is a seeded source of one component. Its stream depends on the seed and the component's name alone, so
// that a component which draws more or less does not move what others draw.
type Random struct {
	seed  uint64 // what Sub derives from
	state uint64
}

// NewRandom makes the source of a whole run.
func NewRandom(seed uint64) *Random { return &Random{seed: seed, state: mix(seed)} }

// Sub makes the source of a component. Equal names give equal streams.
func (r *Random) Sub(name string) *Random {
	h := mix(r.seed ^ 0x9e3779b97f4a7c15)
	for i := range len(name) {
		h = mix(h ^ uint64(name[i]))
	}
	return NewRandom(h)
}

// mix is the finalizer of splitmix64: every bit of the input moves every bit of the output.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Uint64 is the next number of the stream (splitmix64).
func (r *Random) Uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// Below is a number in [0, n), n > 0.
func (r *Random) Below(n int64) int64 {
	hi, _ := bits.Mul64(r.Uint64(), uint64(n))
	return int64(hi)
}

// Int is a number in [0, n), n > 0.
func (r *Random) Int(n int) int { return int(r.Below(int64(n))) }

// Between is a number in [lo, hi].
func (r *Random) Between(lo, hi int) int { return lo + r.Int(hi-lo+1) }

// Chance is true of times in in. Probabilities are ratios of small integers: exact, and easy to say.
func (r *Random) Chance(of, in int) bool { return r.Int(in) < of }

// Pick is one of the choices.
func Pick[T any](r *Random, choices ...T) T { return choices[r.Int(len(choices))] }

// Exponential is a number whose mean is about mean, unbounded but for eight times the mean: the sum of geometric bits
// in integer arithmetic, since floating point is left out of everything that decides the course of a run.
func (r *Random) Exponential(mean int64) int64 {
	if mean <= 0 {
		return 0
	}
	// -ln(u) ≈ (leading zeros of u + a uniform remainder) · ln 2; ln 2 ≈ 710/1024.
	z := int64(bits.LeadingZeros64(r.Uint64() | 1<<52))
	x := z*1024 + r.Below(1024) // in 1/1024 halvings
	return min(mean*x/1024*710/1024, 8*mean)
}
