package impure

import (
	"context"     // want: clock
	"crypto/rand" // want: random
	"fmt"
	"iter"
	"log"             // want: print
	mrand "math/rand" // want: random
	"net"             // want: I/O
	"os"              // want: I/O
	"reflect"         // want: reflect
	"runtime"         // want: go
	"sync"            // want: lock
	"sync/atomic"     // want: lock
	"text/template"   // want: import
	clock "time"
	_ "unsafe"
)

//go:linkname nanotime runtime.nanotime // want: linkname
func nanotime() int64

type guarded struct {
	mu sync.Mutex
	n  atomic.Int64
}

const tick = 10 * clock.Millisecond

func times(d clock.Duration) any {
	then := clock.Now()     // want: clock
	_ = clock.Since(then)   // want: clock
	<-clock.After(d + tick) // want: channel clock
	clock.Sleep(d)          // want: clock
	stamp := clock.Unix     // want: clock
	var when clock.Time     // want: clock
	return []any{stamp, when}
}

func world(ctx context.Context, seq iter.Seq[int]) {
	fmt.Println(reflect.TypeOf(ctx), runtime.NumCPU()) // want: print
	println("x")                                       // want: print
	reflect.ValueOf(ctx).MapRange()                    // want: map order
	next, stop := iter.Pull(seq)                       // want: go
	log.Print(os.Args, net.IPv4len, mrand.Int(), rand.Reader, template.New("x"), fmt.Sprint(next, stop))
}
