package signal

import (
	"bytes"
	"strings"
	"testing"
	"unsafe"
)

func TestEverySignalIsNamedAndWholeWords(t *testing.T) {
	seen := map[string]uint16{}
	for num := uint16(1); num < NumMax; num++ {
		e := &table[num]
		if e.check == nil {
			t.Fatalf("signal %d has no entry", num)
		}
		if o, twice := seen[e.name]; twice {
			t.Errorf("%s is the name of %d and %d", e.name, o, num)
		}
		seen[e.name] = num
		if e.size < HeadSize || e.size%4 != 0 {
			t.Errorf("%s has %d bytes", e.name, e.size)
		}
	}
}

// Every signal that may come over an open link has blocks that take it, and no other has.
func TestEverySignalOfALinkHasATaker(t *testing.T) {
	for num := uint16(1); num < NumMax; num++ {
		e := &table[num]
		handshake := num == NumHello || num == NumHelloConf || num == NumHelloRef
		if (e.from != 0 && !handshake) != (takenBy[num] != 0) {
			t.Errorf("%s: from %b, to %b", e.name, e.from, takenBy[num])
		}
	}
}

func TestFramesAreCheckedBeforeABlockSeesThem(t *testing.T) {
	mk := func(f func(*KeyReq)) *Head {
		b := make([]byte, KeyReqSize+12)
		r := (*KeyReq)(unsafe.Pointer(&b[0]))
		r.Len, r.Num = uint16(len(b)/4), NumReadReq
		r.To, r.From = MakeAddr(1, BlockLDM, 0), MakeAddr(51, BlockClient, 7)
		r.KeyLen, r.DataLen = 8, 3
		f(r)
		return &r.Head
	}
	for _, c := range []struct {
		want string
		f    func(*KeyReq)
	}{
		{"", func(*KeyReq) {}},
		{"unknown number", func(r *KeyReq) { r.Num = 60000 }},
		{"unknown number", func(r *KeyReq) { r.Num = 0 }},
		{"not for such a peer", func(r *KeyReq) { r.Num = NumPrepareReq }},
		{"too short", func(r *KeyReq) { r.Len = 4 }},
		{"not for such a block", func(r *KeyReq) { r.To = MakeAddr(1, BlockMembership, 0) }},
		{"not for such a block", func(r *KeyReq) { r.To = MakeAddr(1, BlockTC, 0) }},
		{"another node's name", func(r *KeyReq) { r.From = MakeAddr(52, BlockClient, 7) }},
		{"meant for another node", func(r *KeyReq) { r.To = MakeAddr(2, BlockLDM, 0) }},
		{"sections do not fit", func(r *KeyReq) { r.KeyLen = 9 }},
		{"sections do not fit", func(r *KeyReq) { r.DataLen = 0xffff }},
		{"sections do not fit", func(r *KeyReq) { r.Op = OpMax }},
		{"sections do not fit", func(r *KeyReq) { r.From = MakeAddr(51, BlockTC, 7) }},
	} {
		f := Check(mk(c.f), PeerAPI, 51, 1)
		if (f == nil) != (c.want == "") || f != nil && !strings.Contains(f.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, f)
		}
	}
}

func TestWholeFindsFrames(t *testing.T) {
	b := make([]byte, 16)
	h := (*Head)(unsafe.Pointer(&b[0]))
	h.Len = 4
	for n, want := range map[int]uint32{0: 0, 11: 0, 12: 0, 15: 0, 16: 16} {
		if got, f := Whole(b[:n]); got != want || f != nil {
			t.Errorf("%d bytes: %d %v", n, got, f)
		}
	}
	h.Len = 2
	if _, f := Whole(b); f == nil {
		t.Error("a frame shorter than its head")
	}
}

func TestFormatNamesFields(t *testing.T) {
	c := Step{Head: Head{Len: uint16(unsafe.Sizeof(Step{}) / 4), Num: NumCommitReq, To: MakeAddr(2, BlockLDM, 0), From: MakeAddr(1, BlockTC, 0)}, OpRef: 9}
	if s := Format(&c.Head); !strings.HasPrefix(s, "CommitReq 1:tc.0 -> 2:ldm.0 OpRef=9") {
		t.Error(s)
	}
	c.Len = HeadSize / 4
	if s := Format(&c.Head); s != "CommitReq 1:tc.0 -> 2:ldm.0" {
		t.Errorf("a short signal prints what lies behind it: %s", s)
	}
}

// FuzzFrames feeds bytes as a link would: no check may read beyond them or panic, whatever they are.
func FuzzFrames(f *testing.F) {
	for num := uint16(1); num < NumMax; num++ {
		if table[num].check == nil {
			continue
		}
		b := make([]byte, max(table[num].size, HeadSize))
		h := (*Head)(unsafe.Pointer(&b[0]))
		h.Len, h.Num, h.To, h.From = uint16(len(b)/4), num, MakeAddr(1, BlockLDM, 0), MakeAddr(51, BlockClient, 7)
		f.Add(b)
	}
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := make([]byte, Pad(uint32(len(in)))+4) // 4-aligned, as receive buffers are
		copy(b, in)
		for len(b) > 0 {
			n, fault := Whole(b)
			if fault != nil || n == 0 {
				return
			}
			h := (*Head)(unsafe.Pointer(&b[0]))
			for _, kind := range []Peer{PeerData, PeerAPI, PeerMgm} {
				if Check(h, kind, h.From.Node(), h.To.Node()) == nil {
					Format(h)
				}
			}
			b = b[n:]
		}
	})
}

func TestLayoutIsCheckedWithinANodeToo(t *testing.T) {
	b := make([]byte, unsafe.Sizeof(TickOrd{})+4)
	h := (*Head)(unsafe.Pointer(&b[0]))
	h.Num, h.Len = NumTickOrd, uint16(unsafe.Sizeof(TickOrd{})/4)
	if f := CheckLayout(h); f != nil || FixedSize(NumTickOrd) != uint32(unsafe.Sizeof(TickOrd{})) {
		t.Errorf("a good signal: %v, fixed size %d", f, FixedSize(NumTickOrd))
	}
	h.Len--
	if f := CheckLayout(h); f == nil || f.Reason != "too short" {
		t.Errorf("a short signal: %v", f)
	}
	h.Len += 2
	if f := CheckLayout(h); f == nil || f.Reason != "sections do not fit" {
		t.Errorf("a long signal: %v", f)
	}
	h.Num = NumMax
	if f := CheckLayout(h); f == nil || FixedSize(NumMax) != 0 {
		t.Error("an unknown number passed")
	}
}

func TestNameHashTellsClustersApart(t *testing.T) {
	if NameHash("") != [2]uint32{0x84222325, 0xcbf29ce4} || NameHash("a") != [2]uint32{0x8601ec8c, 0xaf63dc4c} {
		t.Errorf("not FNV-1a: %x %x", NameHash(""), NameHash("a"))
	}
	if NameHash("one") == NameHash("two") {
		t.Error("two names, one hash")
	}
}
