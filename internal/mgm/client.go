package mgm

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cohortdb/cohort/config"
	"github.com/cohortdb/cohort/internal/mgm/mgmclient"
	"github.com/cohortdb/cohort/internal/mgm/shell"
	"github.com/cohortdb/cohort/internal/options"
)

// clientOptions are the command line of ndb_mgm.
type clientOptions struct {
	connect    string
	execute    string
	hasExecute bool
	retries    int
	delay      int
}

func clientSet(o *clientOptions) *options.Set {
	set := options.New("[options] [CONNECTSTRING]", `The management client: shows the state of a cluster, stops and starts it, reads and changes
what its log says. Without -e it asks for commands; HELP lists them.`)
	connectOptions(set, &o.connect)
	set.Func("execute,e", "COMMAND", "do one command and end; the status is 0 if it worked", func(v string) error {
		o.execute, o.hasExecute = v, true
		return nil
	})
	set.Int(&o.retries, "connect-retries", "N", "how often to try again where no server answers (2)", 0, 1<<30)
	set.Int(&o.retries, "try-reconnect,t", "N", "the same, by its old name", 0, 1<<30)
	set.Int(&o.delay, "connect-retry-delay", "SECONDS", "pause between tries (1)", 0, 1<<20)
	set.Example("ndb_mgm -e show")
	set.Example("ndb_mgm -c mgm1:1186,mgm2:1186 -e 'all report memoryusage'")
	return set
}

// connectOptions adds the spellings of the connect string that NDB's tools share.
func connectOptions(set *options.Set, connect *string) {
	set.String(connect, "ndb-connectstring,c", "CONNECTSTRING", "where the management servers are\n(default: $NDB_CONNECTSTRING, else localhost:1186)")
	set.String(connect, "connect-string", "CONNECTSTRING", "the same")
	set.String(connect, "ndb-mgmd-host", "HOST[:PORT]", "the same")
}

// target reads the connect string of an option, of what stands behind the options (HOST or HOST PORT), or of the
// environment.
func target(option string, rest []string) (config.ConnectString, error) {
	switch {
	case len(rest) == 2 && option == "":
		option = net.JoinHostPort(rest[0], rest[1])
	case len(rest) == 1 && option == "":
		option = rest[0]
	case len(rest) > 0:
		return config.ConnectString{}, fmt.Errorf("%q is no option: --help lists them", rest[0])
	}
	return config.ParseConnectString(mgmclient.ConnectString(option))
}

// MainMgm is the program ndb_mgm.
func MainMgm(name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o := &clientOptions{retries: 2, delay: 1}
	rest, status, done := parse(clientSet(o), name, args, stdout, stderr)
	if done {
		return status
	}
	where, err := target(o.connect, rest)
	if err != nil {
		complain(stderr, name, err)
		return exitUsage
	}
	s := shell.New(shell.Options{Target: where, Retries: o.retries, RetryDelay: time.Duration(o.delay) * time.Second, Out: stdout})
	ctx := context.Background()
	if o.hasExecute {
		err = s.Once(ctx, o.execute, stderr, name)
	} else {
		err = s.Interact(ctx, stdin)
	}
	if err != nil {
		return exitFailed
	}
	return exitDone
}
