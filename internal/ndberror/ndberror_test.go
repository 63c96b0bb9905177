package ndberror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEveryCodeHasOneClassAndAWording(t *testing.T) {
	if len(all) < 600 {
		t.Fatalf("only %d codes", len(all))
	}
	for i := range all {
		e := &all[i]
		if i > 0 && all[i-1].Code >= e.Code {
			t.Errorf("%d is there twice", e.Code)
		}
		if e.Message == "" || e.Class == ClassNone || e.Retry != e.Class.Temporary() && e.Code != CommittedNotRead {
			t.Errorf("%+v", *e)
		}
	}
	for _, w := range wordings {
		if !Known(w.code) {
			t.Errorf("%d has a wording but no class", w.code)
		}
	}
}

func TestClassesDriveRetries(t *testing.T) {
	for code, retry := range map[int]bool{
		NotFound: false, Duplicate: false, LockTimeout: true, NoOperationRecord: true, DataMemoryFull: false, NodeFailed: true,
		ClusterNotReady: false, NoAnswer: false, AnswerLost: false, OldTable: false, NodeStopping: true, LockBusy: true,
		Deadlock: true, PartFailed: true, Moving: true, SingleUser: false,
		SendBufferFull: true, CommitWindowFull: true, CommittedNotRead: false, 123456: false,
	} {
		if e := Get(code); e.Retry != retry || e.Code != code {
			t.Errorf("%d: %+v", code, *e)
		}
	}
	if Get(0) != nil {
		t.Error("0 is no error")
	}
}

func TestErrorsAreComparedByCode(t *testing.T) {
	err := fmt.Errorf("account 7: %w", Get(NotFound))
	if !errors.Is(err, Get(NotFound)) || errors.Is(err, Get(Duplicate)) {
		t.Error("errors.Is")
	}
	if !errors.Is(&Error{Code: 626}, Get(NotFound)) {
		t.Error("another value of the same code")
	}
	if s := err.Error(); !strings.Contains(s, "error 626: ") || !strings.Contains(s, "no data found") {
		t.Error(s)
	}
}
