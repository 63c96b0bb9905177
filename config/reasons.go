package config

// Reasons that several parameters share, as clauses after "because".
const (
	becauseRecovery    = "nothing is written to disk or read back until recovery exists"
	becauseDiskData    = "there are no disk data tables yet"
	becauseBackup      = "there is no backup yet"
	becauseScans       = "there are no scans yet"
	becauseIndexStat   = "there are no index statistics yet"
	becauseTriggers    = "there are no triggers"
	becauseEvents      = "there are no event streams yet"
	becauseAllNodes    = "until recovery exists every start is an initial one, which waits for all data nodes"
	becauseAngel       = "no process starts a failed data node again"
	becauseWatchdog    = "there is no watchdog yet"
	becauseReserved    = "every pool is taken whole at start"
	becauseSendBuffers = "every link has a send buffer of its own, SendBufferMemory"
	becauseThreads     = "the threads follow from AutomaticThreadConfig, ThreadConfig or MaxNoOfExecutionThreads"
	becauseCPUs        = "the system decides which thread runs on which CPU"
	becauseSpin        = "a thread with nothing to do sleeps at once"
	becauseDomains     = "nodes are chosen by primary replica and host, not by location domain"
	becauseWAN         = "the system fits the buffers of sockets to the line"
	becauseSHM         = "nodes of one host speak TCP over the loopback address"
	becauseMixology    = "it is an aid for debugging NDB itself"

	doesLogLevel = "level of detail, 0 to 15, of the events of this category that the node writes to its own log"
)
