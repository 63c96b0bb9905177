package ndb

import "github.com/cohortdb/cohort/internal/ndberror"

// Error is an error of the database: Code and Class as users of NDB know them, a Message for people, and Retry, which
// says that the transaction had no effect and may be run again unchanged. Compare codes by errors.Is with one of the
// values below, or look into it by errors.As.
type Error = ndberror.Error

// Class groups error codes by what to do about them.
type Class = ndberror.Class

// The classes that a program may want to tell apart.
const (
	ClassApplication    = ndberror.ClassApplication
	ClassConfiguration  = ndberror.ClassConfiguration
	ClassConstraint     = ndberror.ClassConstraint
	ClassNotImplemented = ndberror.ClassNotImplemented
	ClassSpace          = ndberror.ClassSpace
	ClassInternal       = ndberror.ClassInternal
	ClassNoData         = ndberror.ClassNoData
	ClassNodeRecovery   = ndberror.ClassNodeRecovery
	ClassNodeShutdown   = ndberror.ClassNodeShutdown
	ClassOverload       = ndberror.ClassOverload
	ClassSchema         = ndberror.ClassSchema
	ClassSchemaExists   = ndberror.ClassSchemaExists
	ClassTemporary      = ndberror.ClassTemporary
	ClassTimeout        = ndberror.ClassTimeout
	ClassUnknownResult  = ndberror.ClassUnknownResult
)

// Errors that programs ask for by errors.Is.
var (
	ErrNotFound        error = ndberror.Get(ndberror.NotFound)          // 626
	ErrDuplicate       error = ndberror.Get(ndberror.Duplicate)         // 630
	ErrLockTimeout     error = ndberror.Get(ndberror.LockTimeout)       // 266
	ErrDeadlock        error = ndberror.Get(ndberror.Deadlock)          // 274
	ErrLockBusy        error = ndberror.Get(ndberror.LockBusy)          // 635
	ErrNoSuchTable     error = ndberror.Get(ndberror.NoSuchTable)       // 723
	ErrTableExists     error = ndberror.Get(ndberror.TableExists)       // 721
	ErrOldTable        error = ndberror.Get(ndberror.OldTable)          // 241
	ErrDataMemoryFull  error = ndberror.Get(ndberror.DataMemoryFull)    // 827
	ErrTooManyOps      error = ndberror.Get(ndberror.NoOperationRecord) // 233, in the data nodes
	ErrNodeFailed      error = ndberror.Get(ndberror.NodeFailed)        // 4010
	ErrNotReady        error = ndberror.Get(ndberror.ClusterNotReady)   // 4009
	ErrNoAnswer        error = ndberror.Get(ndberror.NoAnswer)          // 4012, outcome unknown
	ErrAnswerLost      error = ndberror.Get(ndberror.AnswerLost)        // 4008, outcome unknown
	ErrClosed          error = ndberror.Get(ndberror.SessionClosed)     // 4121
	ErrTxEnded         error = ndberror.Get(ndberror.TxEnded)           // 4114
	ErrNotSupportedYet error = ndberror.Get(ndberror.NotSupportedYet)   // 4003
)

// ErrorOf is the error of a code, as a data node would send it; nil for 0.
func ErrorOf(code int) error {
	if e := ndberror.Get(code); e != nil {
		return e
	}
	return nil
}

// CodeOf is the code of an error of the database, 0 for nil, -1 for an error of another kind.
func CodeOf(err error) int {
	return ndberror.CodeOf(err)
}

// codeError makes an error of a core's.
func codeError(e *ndberror.Error) error {
	if e == nil {
		return nil
	}
	return e
}
