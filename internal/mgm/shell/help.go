package shell

import (
	"context"
	"strings"
)

// overview is what HELP alone prints.
const overview = `Commands of the management client. Words in capitals may be in any case; <id> is a node id,
several (1,2 or 1 2), or ALL for all data nodes.

HELP [COMMAND]                   this list, or what a command does
SHOW                             every node: where it is and what it does
<id> STATUS                      what nodes do
<id> START                       start data nodes that wait for it
<id> STOP [-a] [-f]              stop nodes
<id> RESTART [-n] [-i] [-a] [-f] stop data nodes and start them again
SHUTDOWN                         stop all data nodes, then the management servers
<id> REPORT WHAT                 MEMORYUSAGE, BACKUPSTATUS, EVENTLOG, TRANSACTIONS or LOCKS
CLUSTERLOG ON|OFF|TOGGLE [SEVERITY …]
                                 what the cluster log lets through
CLUSTERLOG INFO                  what it lets through now
<id> CLUSTERLOG CATEGORY=LEVEL … how much nodes tell the cluster log
<id> NODELOG DEBUG ON|OFF        debug log of nodes
<id> DUMP NUMBER …               hand numbers to data nodes, for developers
START BACKUP [ID] [OPTIONS]      start a backup
ABORT BACKUP ID                  end a backup
ENTER SINGLE USER MODE ID        only API node ID may work
EXIT SINGLE USER MODE            everybody may work again
CREATE NODEGROUP ID,ID,…         make a node group of new data nodes
DROP NODEGROUP GROUP             drop an empty node group
PURGE STALE SESSIONS             free node ids whose holders do not react
TLS INFO                         whether connections are encrypted
CONNECT [CONNECTSTRING]          connect anew, or elsewhere
PROMPT [TEXT]                    change the prompt
QUIT, EXIT                       leave
`

// topics are what HELP prints about a command, by its main word.
var topics = map[string]string{
	"HELP": `HELP [COMMAND]
Lists the commands, or says what one does: HELP STOP
`,
	"SHOW": `SHOW
Lists every node of the configuration by type. A connected one has its address, version and, for data
nodes, its node group and what it does while it is not started; the star marks the president, which
leads starts, epochs and changes of tables. Of others SHOW says from which host they may connect.
Lines that begin with Warning stand below where something is wrong although the cluster runs: the loss of
one more node would end it, or nodes do not reach each other.
`,
	"STATUS": `<id> STATUS
Prints a line for each node: not connected, not started, starting (with the last start phase that it
completed, and how much of its data it has copied from its peers), started, shutting down, restarting, single user mode; connected, for management and API nodes.
Example: ALL STATUS
`,
	"START": `<id> START
Starts data nodes that were launched with --nostart, or restarted with -n, and wait for it.
See also START BACKUP: HELP BACKUP
`,
	"STOP": `<id> STOP [-a] [-f]
Stops nodes; ALL means all data nodes. A management server is stopped by its id. API nodes cannot be
stopped here: end their programs. A data node hands over first what it leads, so that clients notice
nothing; it refuses where the others could not go on without it.
  -a  at once, without waiting for transactions that run
  -f  even if the other nodes cannot go on
Example: 1,2 STOP -a
`,
	"RESTART": `<id> RESTART [-n] [-i] [-a] [-f]
Stops data nodes and starts them again. One that comes back to a running cluster copies its data from its
peers; ALL STATUS shows how far it is.
  -n  wait for START instead of starting
  -i  start without the files of before
  -a  stop at once, without waiting for transactions that run
  -f  even if the other nodes cannot go on
Example: 2 RESTART
`,
	"SHUTDOWN": `SHUTDOWN
Stops all data nodes, and then all management servers. API nodes go on and wait for the cluster.
`,
	"REPORT": `<id> REPORT MEMORYUSAGE | BACKUPSTATUS | EVENTLOG | TRANSACTIONS | LOCKS
  MEMORYUSAGE   pages of data and index memory in use, and of how many
  BACKUPSTATUS  whether a backup runs, and how far it is
  EVENTLOG      what the management server remembers of the node's events, oldest first
  TRANSACTIONS  the transactions that are open at the node's coordinators (tc), oldest first. 51.3/17 is
                number 17 of session 3 of API node 51
  LOCKS         the locks of the node's rows that somebody waits for: who holds them, and who waits
Any beginning of these words will do: ALL REP MEM
`,
	"CLUSTERLOG": `CLUSTERLOG ON | OFF | TOGGLE [SEVERITY …]
Switches severities of the cluster log, or without one the whole log. Severities, by weight: ALERT,
CRITICAL, ERROR, WARNING, INFO, DEBUG; ALL for all of them.

CLUSTERLOG INFO
Prints which severities are on.

<id> CLUSTERLOG CATEGORY=LEVEL …
Sets how much of a category nodes tell the cluster log: 0 hardly anything, 15 everything. Categories:
STARTUP, SHUTDOWN, STATISTICS, CHECKPOINT, NODERESTART, CONNECTION, INFO, ERROR, CONGESTION, DEBUG,
BACKUP, SCHEMA.
Example: ALL CLUSTERLOG CHECKPOINT=10 STATISTICS=8
`,
	"NODELOG": `<id> NODELOG DEBUG ON | OFF
Switches the debug log of data nodes. Not supported yet.
`,
	"DUMP": `<id> DUMP NUMBER …
Hands up to 16 numbers to data nodes, which write a report into their logs. What the numbers mean may
change from version to version.
`,
	"BACKUP": `START BACKUP [ID] [ENCRYPT [PASSWORD='…']] [SNAPSHOTSTART | SNAPSHOTEND]
             [NOWAIT | WAIT STARTED | WAIT COMPLETED]
ABORT BACKUP ID
Starts or ends a backup. ID is the next number if none is given. Not supported yet.
`,
	"SINGLE": `ENTER SINGLE USER MODE ID
EXIT SINGLE USER MODE
Lets only one API node work, or all of them again. What the others have open is rolled back, and while the
mode lasts they get error 299.
`,
	"NODEGROUP": `CREATE NODEGROUP ID,ID,…
DROP NODEGROUP GROUP
Makes a node group of data nodes that have none, or drops one that holds no data. Not supported yet.
`,
	"PURGE": `PURGE STALE SESSIONS
Frees node ids that data nodes took and then neither used nor gave back.
`,
	"TLS": `TLS INFO
Says whether the connection is encrypted.
`,
	"CONNECT": `CONNECT [CONNECTSTRING]
Ends the session with the management server and opens a new one, with another server if a connect string
is given: [nodeid=N,][bind-address=HOST[:PORT],]HOST[:PORT][,HOST[:PORT]]…
`,
	"PROMPT": `PROMPT [TEXT]
Makes TEXT the prompt; without one the prompt is as at the beginning.
`,
	"QUIT": `QUIT, EXIT
Leaves the client.
`,
}

// synonyms lead from other words of commands to their topics.
var synonyms = map[string]string{"?": "HELP", "EXIT": "QUIT", "BYE": "QUIT", "ABORT": "BACKUP", "ENTER": "SINGLE", "CREATE": "NODEGROUP", "DROP": "NODEGROUP",
	"STALE": "PURGE", "EVENTLOG": "REPORT", "MEMORYUSAGE": "REPORT", "BACKUPSTATUS": "REPORT", "TRANSACTIONS": "REPORT", "LOCKS": "REPORT", "USER": "SINGLE", "MODE": "SINGLE"}

// help is HELP [command]; of several words the last that has a topic decides (HELP START BACKUP).
func (s *Shell) help(_ context.Context, rest []string) error {
	if len(rest) == 0 {
		s.print("%s", strings.TrimSuffix(overview, "\n"))
		return nil
	}
	found := ""
	for _, word := range rest {
		word = strings.ToUpper(word)
		if to, ok := synonyms[word]; ok {
			word = to
		}
		if text, ok := topics[word]; ok {
			found = text
		}
	}
	if found == "" {
		return wrong("There is no help about '%s'. HELP lists the commands.", strings.Join(rest, " "))
	}
	s.print("%s", strings.TrimSuffix(found, "\n"))
	return nil
}
