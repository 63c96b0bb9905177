package kernel

// Mark names a place in the code that runs seldom. Blocks say when they are there (Env.Mark); the simulator collects the
// marks of its runs, and a test demands that all have been reached.
type Mark uint8

// Marks. Each has its line in markNames.
const (
	MarkNone Mark = iota
	// MarkTicketNotTaken: an arbitrator did not take a ticket, because it knew a newer one or its view was won.
	MarkTicketNotTaken
	// MarkTicketUnknown: somebody showed an arbitrator a ticket that it did not know, or not any more.
	MarkTicketUnknown
	// MarkTicketUsed: a part of the cluster showed an arbitrator a ticket with which another part had won.
	MarkTicketUsed
	// MarkMax bounds the marks.
	MarkMax
)

var markNames = [MarkMax]string{
	MarkNone:           "none",
	MarkTicketNotTaken: "ticket not taken",
	MarkTicketUnknown:  "ticket unknown",
	MarkTicketUsed:     "ticket used",
}

func (m Mark) String() string { return markNames[m] }

// Marks is a set of marks.
type Marks [4]uint64

// Add puts all of o into the set.
func (s *Marks) Add(o *Marks) {
	for i := range s {
		s[i] |= o[i]
	}
}

// Has tells whether a mark was reached.
func (s *Marks) Has(m Mark) bool { return s[m/64]>>(m%64)&1 != 0 }

// Mark says that a seldom place was reached.
func (e *Env) Mark(m Mark) { e.marks[m/64] |= 1 << (m % 64) }

// Marks is what this thread's blocks have reached.
func (e *Env) Marks() *Marks { return &e.marks }
