package config

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The binary form, in which management servers store a configuration and hand it to nodes. Little endian:
//
//	magic    4 bytes  "CHCF"
//	version  u16      binaryVersion
//	length   u32      bytes of the body
//	body              see below
//	checksum u32      CRC32C of all that is before it
//
// The body is a number of sections (u16), each: kind (u8), 1 for a DEFAULT section (u8), a number of values (u16),
// and for each value its parameter's name and its text, both with their length before them (u16). Names and texts
// rather than places and numbers, so that a table that has grown reads what an older one wrote, and so that
// whatever is read passes the very checks that a file passes.
const (
	binaryMagic   = "CHCF"
	binaryVersion = 1
	binaryHeader  = 4 + 2 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary gives c in binary form. It fails only where a Name was given to c that no file could have.
func (c *Config) MarshalBinary() ([]byte, error) {
	sections := c.sections()
	b := binary.LittleEndian.AppendUint16(nil, uint16(len(sections)))
	for _, s := range sections {
		var err error
		if b, err = appendSection(b, s); err != nil {
			return nil, err
		}
	}
	return frame(b), nil
}

// frame puts a header before a body and a checksum behind it.
func frame(body []byte) []byte {
	b := append(make([]byte, 0, binaryHeader+len(body)+4), binaryMagic...)
	b = binary.LittleEndian.AppendUint16(b, binaryVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// sections gives what is set in c as the sections of a file.
func (c *Config) sections() []*section {
	sys := newSection(SectionSystem, false, 0, "")
	copy(sys.values, c.system.v)
	*sys.get("Name") = value{set: c.Name != "", str: c.Name}
	*sys.get("ConfigGenerationNumber") = value{set: c.Generation != 0, num: int64(c.Generation)}
	all := []*section{sys, {kind: SectionTCP, isDefault: true, values: c.tcp.v}}
	for _, n := range c.Nodes {
		all = append(all, &section{kind: n.section, values: n.v})
	}
	for _, l := range c.links {
		all = append(all, &section{kind: SectionTCP, values: l.v})
	}
	return all
}

func appendSection(b []byte, s *section) ([]byte, error) {
	isDefault, count := byte(0), 0
	if s.isDefault {
		isDefault = 1
	}
	for _, v := range s.values {
		if v.set {
			count++
		}
	}
	b = append(b, byte(s.kind), isDefault)
	b = binary.LittleEndian.AppendUint16(b, uint16(count))
	for i, v := range s.values {
		if !v.set {
			continue
		}
		p := &tables[s.kind][i]
		for _, text := range [...]string{p.Name, p.format(v)} {
			if c := checkText(text); len(text) > maxValueBytes || c.text != "" {
				return nil, fmt.Errorf("config: [%s] %s cannot be %s: write printable text of at most %d bytes", s.kind, p.Name, clip(text), maxValueBytes)
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
			b = append(b, text...)
		}
	}
	return b, nil
}

// errDamaged is the beginning of every complaint about bytes that are not what MarshalBinary gave.
var errDamaged = errors.New("config: not a whole configuration")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s: fetch it again from the management server, or start that with --initial", errDamaged, fmt.Sprintf(format, args...))
}

// UnmarshalBinary reads the binary form. It takes any bytes: what is damaged, of another version, or breaks a rule
// that a file must keep is an error.
func UnmarshalBinary(data []byte) (*Config, error) {
	if len(data) < binaryHeader+4 || string(data[:4]) != binaryMagic {
		return nil, damaged("it does not begin with %s", binaryMagic)
	}
	if v := binary.LittleEndian.Uint16(data[4:]); v != binaryVersion {
		return nil, fmt.Errorf("config: the configuration has format %d, and this program reads %d: use the same version of Cohort everywhere", v, binaryVersion)
	}
	body := data[binaryHeader : len(data)-4]
	if n := binary.LittleEndian.Uint32(data[6:]); uint64(n) != uint64(len(body)) {
		return nil, damaged("it is to have %d bytes and has %d", uint64(n)+binaryHeader+4, len(data))
	}
	want, got := binary.LittleEndian.Uint32(data[len(data)-4:]), crc32.Checksum(data[:len(data)-4], castagnoli)
	if want != got {
		return nil, damaged("its checksum is %08x in place of %08x", got, want)
	}
	r := &report{file: "stored configuration"}
	d := newDraft(r)
	if err := d.readBinary(body); err != nil {
		return nil, err
	}
	d.layDefaults()
	c := d.build(nil)
	if _, err := r.result(); err != nil {
		return nil, err
	}
	return c, nil
}

// reader takes a body apart; ok turns false at the first read beyond its end and stays so.
type reader struct {
	rest []byte
	ok   bool
}

func (r *reader) take(n int) []byte {
	if !r.ok || n > len(r.rest) {
		r.ok = false
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint8() int {
	if b := r.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (r *reader) uint16() int {
	if b := r.take(2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (r *reader) text() string { return string(r.take(r.uint16())) }

// readBinary turns a body into sections. Its loops end with the bytes, whatever numbers these claim.
func (d *draft) readBinary(body []byte) error {
	r := &reader{body, true}
	for n := r.uint16(); n > 0 && r.ok; n-- {
		kind, isDefault := Section(r.uint8()), r.uint8()
		if kind != SectionSystem && kind != SectionTCP && kind != SectionMGMD && kind != SectionNDBD && kind != SectionAPI || isDefault > 1 {
			return damaged("it has a section of kind %d", kind)
		}
		s := newSection(kind, isDefault == 1, 0, kind.String())
		for k := r.uint16(); k > 0 && r.ok; k-- {
			name, text := r.text(), r.text()
			if r.ok {
				d.set(s, name, text, false, false, 0)
			}
		}
		d.add(s)
	}
	if !r.ok || len(r.rest) != 0 {
		return damaged("its sections do not end where it ends")
	}
	return nil
}
