package pool

import "testing"

func TestPoolRunsOutAndRecovers(t *testing.T) {
	p := New[int](3)
	var got []uint32
	for i := range 3 {
		r, v := p.Seize()
		if v == nil || r != uint32(i) {
			t.Fatalf("seize %d gave %d", i, r)
		}
		*v = i
		got = append(got, r)
	}
	if r, v := p.Seize(); r != None || v != nil || p.Used() != 3 {
		t.Fatalf("a fourth of three: %d, used %d", r, p.Used())
	}
	p.Release(got[1])
	if p.InUse(got[1]) || p.Find(got[1]) != nil || p.Find(99) != nil {
		t.Fatal("a released record is still found")
	}
	if r, v := p.Seize(); r != got[1] || *v != 1 {
		t.Fatalf("the released record is not reused: %d", r)
	}
}

func TestDoubleReleaseIsABug(t *testing.T) {
	p := New[int](2)
	r, _ := p.Seize()
	p.Release(r)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	p.Release(r)
}

func TestNoAllocation(t *testing.T) {
	p := New[[4]uint64](8)
	if n := testing.AllocsPerRun(100, func() { r, _ := p.Seize(); p.Release(r) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
