// Package ndberror is the one table of error codes: what a code means, which class it belongs to, and whether the
// transaction that met it may be run again.
//
// A data node refuses with a code alone; the class decides what a client does about it, and the wording is for
// people. Codes and classes are those that users of NDB know, so that scripts and habits carry over; the wordings
// are this project's own.
//
// The package owns constant data only: it never decides anything, and values returned by Get are shared and must
// not be changed. Read next: ndb, which makes these errors public, and client, which raises some of them.
package ndberror

import (
	"errors"
	"sort"
	"strconv"
)

// Class groups codes by what a client should do about them.
type Class uint8

// Classes.
const (
	ClassNone              Class = iota // no error
	ClassApplication                    // the program asked for something that cannot be: repair the program
	ClassConfiguration                  // the configuration does not allow it
	ClassConstraint                     // the change would break a rule of the table, as a duplicate key does
	ClassNotImplemented                 // not supported
	ClassSpace                          // a memory or file that holds rows is full: make room, then try again
	ClassInternal                       // a fault of the database itself
	ClassInternalTemporary              // a fault that passes by itself
	ClassNoData                         // there is no such row
	ClassNodeRecovery                   // a node failed or is starting: try again
	ClassNodeShutdown                   // a node is stopping: try again, elsewhere
	ClassOverload                       // too much is asked at once: try again later
	ClassSchema                         // the table is not what the program thinks
	ClassSchemaExists                   // there is such a table already
	ClassTemporary                      // a pool or buffer is exhausted for the moment: try again
	ClassTimeout                        // a lock or an answer was waited for too long: try again
	ClassUnknownResult                  // the transaction may have been committed or not: look before trying again
	ClassUserDefined                    // raised by a program
	classCount
)

var classNames = [classCount]string{
	"none", "application", "configuration", "constraint violation", "function not implemented", "insufficient space",
	"internal error", "internal temporary", "no data found", "node recovery", "node shutdown", "overload", "schema error",
	"schema object already exists", "temporary resource", "timeout expired", "unknown result", "user defined",
}

func (c Class) String() string {
	if c < classCount {
		return classNames[c]
	}
	return "class " + strconv.Itoa(int(c))
}

// Temporary tells whether a transaction that was refused with an error of this class may succeed when it is run
// again unchanged. A result that is not known is not among them: running it again could do it twice.
func (c Class) Temporary() bool {
	switch c {
	case ClassInternalTemporary, ClassNodeRecovery, ClassNodeShutdown, ClassOverload, ClassTemporary, ClassTimeout:
		return true
	}
	return false
}

// Error is one error code with its meaning.
type Error struct {
	Code    int    // as in NDB
	Class   Class  // what kind of error it is
	Message string // for people
	Retry   bool   // the transaction had no effect and may be run again
}

func (e *Error) Error() string {
	return "error " + strconv.Itoa(e.Code) + ": " + e.Message + " (" + e.Class.String() + ")"
}

// Is makes errors.Is compare codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Codes that this project raises itself.
const (
	LockTimeout        = 266  // a lock was waited for too long
	Deadlock           = 274  // transactions waited for each other in a circle; this one was rolled back
	Inactive           = 237  // a transaction did nothing for too long
	NoOperationRecord  = 233  // more concurrent operations than configured
	NoTransRecord      = 219  // more concurrent transactions than configured
	OldTable           = 241  // the definition or map in use is not the newest
	NoSuchTable        = 723  // no table of that name
	TableDropped       = 283  // the table is being dropped or gone
	TableExists        = 721  // a table of that name is there
	NotFound           = 626  // no such row
	Duplicate          = 630  // a row with that key is there
	LockBusy           = 635  // a lock is held by another transaction, and waiting was not wanted
	DataMemoryFull     = 827  // DataMemory
	NodeStopping       = 270  // rolled back: a node stops, or gives the row to another
	PartFailed         = 286  // rolled back: a node failed that had a part in the transaction
	Moving             = 1204 // the row's primary is about to be, or is, at another node
	SingleUser         = 299  // only one client is let in
	ClusterNotReady    = 4009 // no data node to talk to
	NodeFailed         = 4010 // a node failed; the transaction was rolled back
	NoAnswer           = 4012 // an answer did not come in time; the outcome is unknown
	AnswerLost         = 4008 // the link broke while the commit was under way; the outcome is unknown
	CommittedNotRead   = 4115 // committed, but a node failed before it sent all rows
	TooManyOperations  = 4032 // MaxOperations of the session, or too many requests about tables at once
	TooManyTx          = 4006 // MaxTransactions of the session
	SendBufferFull     = 4021 // the client's own send buffer
	TxEnded            = 4114 // the transaction has ended
	TxFailed           = 4350 // the transaction was rolled back for another reason
	NotSupportedYet    = 4003 // comes with a later version
	TooLate            = 4200 // an option of an operation was set after something else was done with the transaction
	NotAKey            = 4202 // a value is missing in the primary key
	NullNotAllowed     = 4203 // a column without NULL
	ValueTooLong       = 4209 // longer than its column
	NotOfTable         = 4247 // the row belongs to another table, or the definition is wrong
	BadAnswer          = 4005 // a data node sent what cannot be
	CommitWindowFull   = 4022 // too many commits whose outcome has not been heard
	SessionClosed      = 4121 // the session or connection is closed
	UnknownNode        = 4120 // no such data node
	TableDefinitionBad = 738  // the definition of a table cannot be
)

// wordings are those of the codes that this project raises; others are described by their class.
var wordings = []struct {
	code int
	text string
}{
	{Duplicate, "a row with this primary key exists already"},
	{NotFound, "there is no row with this primary key"},
	{LockTimeout, "lock wait: the transaction waited too long for a row that another one holds, and was rolled back"},
	{Inactive, "the transaction was idle for too long and was rolled back"},
	{Deadlock, "deadlock: the transaction waited for one that waited for it, and was rolled back"},
	{NoOperationRecord, "no operation record is free in the coordinator: raise MaxNoOfConcurrentOperations or send less at a time"},
	{NoTransRecord, "no transaction record is free in the coordinator: raise MaxNoOfConcurrentTransactions"},
	{217, "no operation record is free in the data node: raise MaxNoOfLocalOperations"},
	{218, "the memory for long signals is used up for the moment: raise LongMessageBuffer"},
	{221, "too many requests of this client are under way"},
	{244, "there is no such transaction: it was rolled back or has ended"},
	{250, "the node that holds the row is not ready"},
	{OldTable, "the table has changed since this program looked it up"},
	{TableDropped, "the table is being dropped"},
	{284, "the table is not known to the coordinator"},
	{NoSuchTable, "there is no such table"},
	{TableExists, "there is a table of that name already"},
	{LockBusy, "another transaction holds the lock, and waiting was not wanted"},
	{NodeStopping, "a data node is stopping or hands rows over to another: the transaction was rolled back"},
	{PartFailed, "node failure: a data node was lost that had a part in the transaction, which was rolled back"},
	{280, "the data node is stopping: the transaction was rolled back"},
	{SingleUser, "single user mode: only one client may use the cluster now, and this is another"},
	{623, "the fragment cannot hold more rows"},
	{DataMemoryFull, "DataMemory is full: delete rows or raise it"},
	{830, "no record for a pending change is free for the moment"},
	{873, "the buffer for pending changes is full for the moment"},
	{839, "a column that must not be NULL has no value"},
	{876, "a column is named twice, or there is none of that number"},
	{885, "a value is longer than its column"},
	{701, "another change of tables is under way"},
	{707, "the dictionary has no room for another table: raise MaxNoOfTables"},
	{708, "the dictionary has no room for more columns: raise MaxNoOfAttributes"},
	{736, "the column type or length is not supported"},
	{TableDefinitionBad, "the table definition cannot be: see its columns and key"},
	{740, "the table has too few or too many columns in its primary key"},
	{739, "the primary key is too long"},
	{744, "the name of a table or column is not allowed"},
	{746, "the table has two columns of one name"},
	{755, "the number of fragments is not possible"},
	{711, "a node is starting or failing: tables cannot be changed now"},
	{784, "the data nodes are busy with another change of tables"},
	{Moving, "the row is moving to another data node, or the cluster is starting or stopping"},
	{1223, "the cluster is shutting down"},
	{1220, "the redo log is full for the moment"},
	{1221, "too many operations wait for the redo log"},
	{410, "the redo log buffer is full for the moment: raise RedoBuffer"},
	{1234, "the redo log is not ready"},
	{ClusterNotReady, "no data node is connected and started"},
	{NodeFailed, "a data node failed and the transaction was rolled back"},
	{NoAnswer, "no answer came in time: the transaction may have been committed or not"},
	{AnswerLost, "the link to the coordinator broke during the commit: the transaction may have been committed or not"},
	{CommittedNotRead, "the transaction has committed, but a node failed before it had sent every row"},
	{TooManyOperations, "too many operations of the session are under way: poll for answers first, or raise MaxOperations"},
	{TooManyTx, "no transaction record is free in the session: close transactions or poll for answers first, or raise MaxTransactions"},
	{SendBufferFull, "the send buffer to the data node is full for the moment"},
	{CommitWindowFull, "too many commits of the session are under way: poll for answers first"},
	{TxEnded, "the transaction has ended"},
	{TxFailed, "the transaction was rolled back"},
	{NotSupportedYet, "not supported yet"},
	{TooLate, "an option of an operation was set too late: set it before anything else is done with the transaction"},
	{NotAKey, "a part of the primary key has no value"},
	{NullNotAllowed, "the column cannot be NULL"},
	{ValueTooLong, "the value is longer than its column"},
	{NotOfTable, "the row or record belongs to another table or another definition of it"},
	{BadAnswer, "a data node sent an answer that does not fit the request"},
	{SessionClosed, "the session or its connection is closed"},
	{UnknownNode, "there is no such data node, or it is not connected"},
}

// all has every code, ascending.
var all []Error

func init() {
	for class := ClassApplication; class < classCount; class++ {
		for _, code := range codes[class] {
			all = append(all, Error{Code: int(code), Class: class, Message: generic(class), Retry: class.Temporary()})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Code < all[j].Code })
	for _, w := range wordings {
		find(w.code).Message = w.text
	}
	find(CommittedNotRead).Retry = false // it has had its effect, whatever its class says
}

// generic describes a code that has no wording of its own.
func generic(c Class) string {
	switch c {
	case ClassApplication:
		return "the request is not possible"
	case ClassConfiguration:
		return "the configuration does not allow it"
	case ClassConstraint:
		return "a constraint would be broken"
	case ClassNotImplemented:
		return "not supported"
	case ClassSpace:
		return "there is no room"
	case ClassInternalTemporary:
		return "an internal fault that passes by itself"
	case ClassNoData:
		return "there is no such row"
	case ClassNodeRecovery:
		return "a node failed or is starting"
	case ClassNodeShutdown:
		return "a node is stopping"
	case ClassOverload:
		return "too much is asked at once"
	case ClassSchema:
		return "the table is not as expected"
	case ClassSchemaExists:
		return "there is such an object already"
	case ClassTemporary:
		return "a resource is used up for the moment"
	case ClassTimeout:
		return "something was waited for too long"
	case ClassUnknownResult:
		return "the outcome is not known"
	case ClassUserDefined:
		return "an error defined by the program"
	}
	return "an internal error"
}

func find(code int) *Error {
	i := sort.Search(len(all), func(i int) bool { return all[i].Code >= code })
	if i < len(all) && all[i].Code == code {
		return &all[i]
	}
	return nil
}

// Get is the error of a code, nil for 0. A code that is not in the table is an internal error. The value is shared
// for codes of the table: comparing with it by errors.Is is the way to test for a code.
func Get(code int) *Error {
	if code == 0 {
		return nil
	}
	if e := find(code); e != nil {
		return e
	}
	return &Error{Code: code, Class: ClassInternal, Message: "an error code that this version does not know"}
}

// Known tells whether the table has the code.
func Known(code int) bool { return find(code) != nil }

// CodeOf is the code that an error carries, 0 for nil, -1 for an error that is none of the database's.
func CodeOf(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := err.(*Error); ok {
		return e.Code
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return -1
}
