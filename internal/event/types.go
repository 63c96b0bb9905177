package event

// The types. Numbers below 200 are NDB's.
const (
	Connected                 Type = 0
	Disconnected              Type = 1
	CommunicationClosed       Type = 2
	CommunicationOpened       Type = 3
	GlobalCheckpointStarted   Type = 4
	GlobalCheckpointCompleted Type = 5
	LocalCheckpointStarted    Type = 6
	LocalCheckpointCompleted  Type = 7
	LCPFragmentCompleted      Type = 9
	NDBStartStarted           Type = 10
	NDBStartCompleted         Type = 11
	StartPhaseCompleted       Type = 13
	JoinAccepted              Type = 14 // CM_REGCONF
	JoinRefused               Type = 15 // CM_REGREF
	FindNeighbours            Type = 16
	NDBStopStarted            Type = 17
	NDBStopAborted            Type = 18
	StartREDOLog              Type = 19
	StartLog                  Type = 20
	UNDORecordsExecuted       Type = 21
	NRCopyDict                Type = 22
	NRCopyFragsStarted        Type = 24
	NRCopyFragsCompleted      Type = 26
	NodeFailCompleted         Type = 27
	NodeFailReport            Type = 28 // NODE_FAILREP
	ArbitState                Type = 29
	ArbitResult               Type = 30
	TransReportCounters       Type = 35
	OperationReportCounters   Type = 36
	TableCreated              Type = 37
	JobStatistic              Type = 39
	SendBytesStatistic        Type = 40
	ReceiveBytesStatistic     Type = 41
	TransporterError          Type = 42
	TransporterWarning        Type = 43
	MissedHeartbeat           Type = 44
	DeadDueToHeartbeat        Type = 45
	WarningEvent              Type = 46
	SentHeartbeat             Type = 47
	CreateLogBytes            Type = 48
	InfoEvent                 Type = 49
	MemoryUsage               Type = 50
	ConnectedApiVersion       Type = 51
	SingleUser                Type = 52
	NDBStopCompleted          Type = 53
	BackupStarted             Type = 54
	BackupFailedToStart       Type = 55
	BackupCompleted           Type = 56
	BackupAborted             Type = 57
	NDBStopForced             Type = 59
	StartReport               Type = 60
	BackupStatus              Type = 62
	ThreadConfigLoop          Type = 68
	SubscriptionStatus        Type = 69
	RedoStatus                Type = 73
	CreateSchemaObject        Type = 74
	AlterSchemaObject         Type = 75
	DropSchemaObject          Type = 76
	SavedEvent                Type = 77 // asks a management server for what it remembers of a node's events

	ConfigChanged    Type = 200 // the management server took a new configuration
	NodeIdAllocated  Type = 201 // the management server gave an id away
	NodeIdFreed      Type = 202 // the holder of an id is gone
	SendBufferFull   Type = 203 // a link's send buffer is full; senders wait
	ClientCutOff     Type = 204 // a client did not read and lost its link
	MemoryLayout     Type = 205 // one item of the memory that a data node computed from its configuration
	ThreadLayout     Type = 206 // what a thread of a data node runs
	PresidentElected Type = 207 // a node became president
	EpochLag         Type = 208 // an epoch takes longer than it should
	ViewCommitted    Type = 209 // the members have agreed on who is in the cluster
	NextLossFatal    Type = 210 // the loss of one more data node may end the cluster, or does not any more
	NodeDistrust     Type = 211 // a node does not hear enough others, or hears them again
	LockWaitTimeout  Type = 212 // an operation has waited too long for a lock
)

// Values of numbers in events.
const (
	// BlockDataMemory and BlockIndexMemory say in MemoryUsage which memory is meant (NDB's numbers of DBTUP and DBACC).
	BlockDataMemory  = 249
	BlockIndexMemory = 248

	// StopActionStop and StopActionRestart say what follows a stop.
	StopActionStop    = 0
	StopActionRestart = 1

	// StopScopeNode and StopScopeCluster say what NDBStopStarted is about.
	StopScopeNode    = 0
	StopScopeCluster = 1

	// PhaseStarted stands for "not in a start phase" where a phase is asked for.
	PhaseStarted = 255

	// What a starting node waits for in StartReport: that nodes start too, that those that run take it in, or a start phase
	// (the phase's number is added).
	StartWaitsNodes     = 1
	StartWaitsPresident = 2
	StartWaitsPhase     = 100

	// The kinds of start in StartPhaseCompleted and NDBStartStarted.
	StartKindSystem      = 0
	StartKindInitial     = 1
	StartKindNode        = 2
	StartKindInitialNode = 3
)

// table has the entry of each type at its number.
var table = [...]Info{
	Connected:    {Name: "Connected", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node", Form: "Node {node} Connected"},
	Disconnected: {Name: "Disconnected", Category: CategoryConnection, Level: 8, Severity: Alert, Args: "node", Form: "Node {node} Disconnected"},
	CommunicationClosed: {Name: "CommunicationClosed", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node",
		Form: "Communication to Node {node} closed"},
	CommunicationOpened: {Name: "CommunicationOpened", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node",
		Form: "Communication to Node {node} opened"},
	ConnectedApiVersion: {Name: "ConnectedApiVersion", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node version",
		Form: "Node {node}: API {version:v}"},

	GlobalCheckpointStarted: {Name: "GlobalCheckpointStarted", Category: CategoryCheckpoint, Level: 9, Severity: Note, Args: "gci",
		Form: "Global checkpoint {gci} started"},
	GlobalCheckpointCompleted: {Name: "GlobalCheckpointCompleted", Category: CategoryCheckpoint, Level: 10, Severity: Note, Args: "gci",
		Form: "Global checkpoint {gci} completed"},
	LocalCheckpointStarted: {Name: "LocalCheckpointStarted", Category: CategoryCheckpoint, Level: 7, Severity: Note, Args: "lci keep_gci restore_gci",
		Form: "Local checkpoint {lci} started. Keep GCI = {keep_gci} oldest restorable GCI = {restore_gci}"},
	LocalCheckpointCompleted: {Name: "LocalCheckpointCompleted", Category: CategoryCheckpoint, Level: 7, Severity: Note, Args: "lci",
		Form: "Local checkpoint {lci} completed"},
	LCPFragmentCompleted: {Name: "LCPFragmentCompleted", Category: CategoryCheckpoint, Level: 11, Severity: Note, Args: "node table_id fragment_id",
		Form: "Table {table_id} fragment {fragment_id}: local checkpoint at node {node} completed"},
	RedoStatus: {Name: "RedoStatus", Category: CategoryCheckpoint, Level: 7, Severity: Note, Args: "log_part head_file head_mb tail_file tail_mb total_mb free_mb",
		Form: "Redo log part {log_part}: head file {head_file} mb {head_mb}, tail file {tail_file} mb {tail_mb}, {free_mb} of {total_mb} MB free"},
	EpochLag: {Name: "EpochLag", Category: CategoryCheckpoint, Level: 2, Severity: Warning, Args: "gci_hi gci_lo lag_ms node",
		Form: "Epoch {gci_hi}/{gci_lo} has waited {lag_ms} ms for node {node}"},

	NDBStartStarted: {Name: "NDBStartStarted", Category: CategoryStartup, Level: 1, Severity: Note, Args: "version",
		Form: "Start initiated ({version:v})"},
	NDBStartCompleted: {Name: "NDBStartCompleted", Category: CategoryStartup, Level: 1, Severity: Note, Args: "version",
		Form: "Started ({version:v})"},
	StartPhaseCompleted: {Name: "StartPhaseCompleted", Category: CategoryStartup, Level: 4, Severity: Note, Args: "phase starttype", write: writeStartPhase},
	JoinAccepted: {Name: "CM_REGCONF", Category: CategoryStartup, Level: 3, Severity: Note, Args: "own_id president_id dynamic_id",
		Form: "Node {own_id} joined the cluster of president {president_id}, its dynamic id is {dynamic_id}"},
	JoinRefused: {Name: "CM_REGREF", Category: CategoryStartup, Level: 8, Severity: Note, Args: "own_id other_id cause",
		Form: "Node {other_id} refused node {own_id}, cause {cause}"},
	FindNeighbours: {Name: "FIND_NEIGHBOURS", Category: CategoryStartup, Level: 8, Severity: Note, Args: "own_id left_id right_id dynamic_id",
		Form: "Node {own_id} stands between node {left_id} and node {right_id}, its dynamic id is {dynamic_id}"},
	PresidentElected: {Name: "PresidentElected", Category: CategoryStartup, Level: 3, Severity: Note, Args: "node",
		Form: "Node {node} is president"},
	StartREDOLog: {Name: "StartREDOLog", Category: CategoryStartup, Level: 4, Severity: Note, Args: "node keep_gci completed_gci restore_gci",
		Form: "Node {node} starts its redo log: keep GCI {keep_gci}, completed {completed_gci}, restorable {restore_gci}"},
	StartLog: {Name: "StartLog", Category: CategoryStartup, Level: 10, Severity: Note, Args: "log_part start_mb stop_mb stop_gci",
		Form: "Log part {log_part}: start MB {start_mb}, stop MB {stop_mb}, GCI {stop_gci}"},
	UNDORecordsExecuted: {Name: "UNDORecordsExecuted", Category: CategoryStartup, Level: 15, Severity: Note, Args: "block records",
		Form: "Block {block} executed {records} undo records"},
	StartReport: {Name: "StartReport", Category: CategoryStartup, Level: 4, Severity: Note,
		Args: "seconds report_type nodes0 nodes1 nodes2 nodes3 nodes4", write: writeStartReport},
	MemoryLayout: {Name: "MemoryLayout", Category: CategoryStartup, Level: 5, Severity: Note, Args: "bytes_hi bytes_lo",
		write: writeMemoryLayout},
	ThreadLayout: {Name: "ThreadLayout", Category: CategoryStartup, Level: 3, Severity: Note, Args: "thread cpu",
		Form: "Thread {thread}: {text}"},

	NDBStopStarted: {Name: "NDBStopStarted", Category: CategoryShutdown, Level: 1, Severity: Note, Args: "stoptype", write: writeStopStarted},
	NDBStopCompleted: {Name: "NDBStopCompleted", Category: CategoryShutdown, Level: 1, Severity: Note, Args: "action signum",
		write: writeStopCompleted},
	NDBStopForced: {Name: "NDBStopForced", Category: CategoryShutdown, Level: 1, Severity: Alert, Args: "action signum error sphase extra",
		write: writeStopForced},
	NDBStopAborted: {Name: "NDBStopAborted", Category: CategoryShutdown, Level: 1, Severity: Note, Form: "Node shutdown aborted"},

	NRCopyDict: {Name: "NR_CopyDict", Category: CategoryNodeRestart, Level: 8, Severity: Note, Args: "node tables",
		Form: "Node {node} was told {tables} tables"},
	NRCopyFragsStarted: {Name: "NR_CopyFragsStarted", Category: CategoryNodeRestart, Level: 8, Severity: Note, Args: "node",
		Form: "Node {node} copies its fragments from its peers"},
	NRCopyFragsCompleted: {Name: "NR_CopyFragsCompleted", Category: CategoryNodeRestart, Level: 8, Severity: Note, Args: "node rows_hi rows_lo bytes_hi bytes_lo ms",
		write: writeCopied},
	NodeFailCompleted: {Name: "NodeFailCompleted", Category: CategoryNodeRestart, Level: 8, Severity: Alert, Args: "failed_node completing_node",
		Form: "Failure handling of node {failed_node} completed at node {completing_node}"},
	NodeFailReport: {Name: "NODE_FAILREP", Category: CategoryNodeRestart, Level: 8, Severity: Alert, Args: "failed_node failure_state",
		Form: "Node {failed_node} has failed (its state: {failure_state})"},
	ArbitState: {Name: "ArbitState", Category: CategoryNodeRestart, Level: 6, Severity: Note, Args: "code arbit_node",
		Form: "Arbitration: {text} (code {code}, arbitrator node {arbit_node})"},
	ArbitResult: {Name: "ArbitResult", Category: CategoryNodeRestart, Level: 2, Severity: Alert, Args: "code arbit_node",
		Form: "Arbitration decided: {text} (code {code}, arbitrator node {arbit_node})"},

	ViewCommitted: {Name: "ViewCommitted", Category: CategoryNodeRestart, Level: 4, Severity: Note, Args: "view president members serving",
		Form: "View {view}: {members} data nodes, {serving} of them with all data, president {president}: {text}"},
	NextLossFatal: {Name: "NextLossFatal", Category: CategoryNodeRestart, Level: 2, Severity: Warning, Args: "fatal view", Form: "{text}"},
	NodeDistrust:  {Name: "NodeDistrust", Category: CategoryNodeRestart, Level: 6, Severity: Warning, Args: "distrust", Form: "{text}"},

	TransReportCounters: {Name: "TransReportCounters", Category: CategoryStatistics, Level: 8, Severity: Note,
		Args: "trans_count commit_count read_count simple_read_count write_count oper_count abort_count scan_count",
		Form: "Trans. Count = {trans_count}, Commit Count = {commit_count}, Read Count = {read_count}, Simple Read Count = {simple_read_count}, " +
			"Write Count = {write_count}, Operations = {oper_count}, Abort Count = {abort_count}, Scans = {scan_count}"},
	OperationReportCounters: {Name: "OperationReportCounters", Category: CategoryStatistics, Level: 8, Severity: Note, Args: "ops",
		Form: "Operations = {ops}"},
	TableCreated: {Name: "TableCreated", Category: CategoryStatistics, Level: 7, Severity: Note, Args: "table_id",
		Form: "Table with id {table_id} created"},
	JobStatistic: {Name: "JobStatistic", Category: CategoryStatistics, Level: 9, Severity: Note, Args: "mean_loop_count",
		Form: "Mean loop counter of the job buffers = {mean_loop_count}"},
	SendBytesStatistic: {Name: "SendBytesStatistic", Category: CategoryStatistics, Level: 9, Severity: Note, Args: "to_node mean_sent_bytes",
		Form: "Mean send size to node {to_node} = {mean_sent_bytes} bytes"},
	ReceiveBytesStatistic: {Name: "ReceiveBytesStatistic", Category: CategoryStatistics, Level: 9, Severity: Note, Args: "from_node mean_received_bytes",
		Form: "Mean receive size from node {from_node} = {mean_received_bytes} bytes"},
	MemoryUsage: {Name: "MemoryUsage", Category: CategoryStatistics, Level: 5, Severity: Note, Args: "gth page_size_bytes pages_used pages_total block",
		write: writeMemoryUsage},
	ThreadConfigLoop: {Name: "ThreadConfigLoop", Category: CategoryStatistics, Level: 9, Severity: Note,
		Args: "expired_time_us extra_constant_time_us execution_time_us execution_time_per_loop",
		Form: "Loop: {expired_time_us} us expired, {execution_time_us} us executed"},

	TransporterError: {Name: "TransporterError", Category: CategoryError, Level: 2, Severity: Error, Args: "to_node code",
		Form: "Link to node {to_node} reported error {code}: {text}"},
	TransporterWarning: {Name: "TransporterWarning", Category: CategoryError, Level: 8, Severity: Warning, Args: "to_node code",
		Form: "Link to node {to_node} reported {code}: {text}"},
	MissedHeartbeat: {Name: "MissedHeartbeat", Category: CategoryError, Level: 8, Severity: Warning, Args: "node count",
		Form: "Node {node} missed heartbeat {count}"},
	DeadDueToHeartbeat: {Name: "DeadDueToHeartbeat", Category: CategoryError, Level: 8, Severity: Alert, Args: "node",
		Form: "Node {node} declared dead due to missed heartbeats"},
	LockWaitTimeout: {Name: "LockWaitTimeout", Category: CategoryError, Level: 4, Severity: Warning,
		Args: "node session transaction holder_node holder_session holder_transaction",
		Form: "Node {node} session {session} transaction {transaction} gave up waiting for a lock of node {holder_node} session {holder_session} transaction {holder_transaction}: {text}"},
	WarningEvent:       {Name: "WarningEvent", Category: CategoryError, Level: 2, Severity: Warning, Form: "{text}"},
	SubscriptionStatus: {Name: "SubscriptionStatus", Category: CategoryError, Level: 4, Severity: Warning, Args: "report_type node", Form: "Subscriber node {node}: {text}"},
	ClientCutOff: {Name: "ClientCutOff", Category: CategoryError, Level: 2, Severity: Warning, Args: "node bytes",
		Form: "Node {node} did not read {bytes} bytes in time and was cut off"},

	SendBufferFull: {Name: "SendBufferFull", Category: CategoryCongestion, Level: 5, Severity: Warning, Args: "node bytes",
		Form: "Send buffer to node {node} is full ({bytes} bytes)"},

	SentHeartbeat:  {Name: "SentHeartbeat", Category: CategoryInfo, Level: 12, Severity: Note, Args: "node", Form: "Node sent a heartbeat to node {node}"},
	CreateLogBytes: {Name: "CreateLogBytes", Category: CategoryInfo, Level: 11, Severity: Note, Args: "node", Form: "Log part, log file, MB: {text}"},
	InfoEvent:      {Name: "InfoEvent", Category: CategoryInfo, Level: 2, Severity: Note, Form: "{text}"},
	SingleUser: {Name: "SingleUser", Category: CategoryInfo, Level: 7, Severity: Note, Args: "change node_id",
		Form: "Single user mode {text} (node {node_id})"},
	SavedEvent:      {Name: "SavedEvent", Category: CategoryInfo, Level: 15, Severity: Debug, Form: "{text}"},
	ConfigChanged:   {Name: "ConfigChanged", Category: CategoryInfo, Level: 2, Severity: Note, Args: "generation", Form: "Configuration {generation}: {text}"},
	NodeIdAllocated: {Name: "NodeIdAllocated", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node", Form: "Nodeid {node} allocated for {text}"},
	NodeIdFreed:     {Name: "NodeIdFreed", Category: CategoryConnection, Level: 8, Severity: Note, Args: "node", Form: "Nodeid {node} freed: {text}"},

	BackupStarted: {Name: "BackupStarted", Category: CategoryBackup, Level: 7, Severity: Note, Args: "starting_node backup_id",
		Form: "Backup {backup_id} started from node {starting_node}"},
	BackupFailedToStart: {Name: "BackupFailedToStart", Category: CategoryBackup, Level: 7, Severity: Alert, Args: "starting_node error",
		Form: "Backup request from {starting_node} failed to start. Error: {error}"},
	BackupCompleted: {Name: "BackupCompleted", Category: CategoryBackup, Level: 7, Severity: Note,
		Args: "starting_node backup_id start_gci stop_gci n_records n_log_records n_bytes n_log_bytes",
		Form: "Backup {backup_id} started from node {starting_node} completed. StartGCP: {start_gci} StopGCP: {stop_gci} #Records: {n_records} " +
			"#LogRecords: {n_log_records} Data: {n_bytes} bytes Log: {n_log_bytes} bytes"},
	BackupAborted: {Name: "BackupAborted", Category: CategoryBackup, Level: 7, Severity: Alert, Args: "starting_node backup_id error",
		Form: "Backup {backup_id} started from {starting_node} has been aborted. Error: {error}"},
	BackupStatus: {Name: "BackupStatus", Category: CategoryBackup, Level: 7, Severity: Note, Args: "starting_node backup_id n_bytes_lo n_bytes_hi",
		write: writeBackupStatus},

	CreateSchemaObject: {Name: "CreateSchemaObject", Category: CategorySchema, Level: 8, Severity: Note, Args: "object_id version object_type node",
		Form: "Created object {object_id} version {version} type {object_type} (from {node}) {text}"},
	AlterSchemaObject: {Name: "AlterSchemaObject", Category: CategorySchema, Level: 8, Severity: Note, Args: "object_id version object_type node",
		Form: "Altered object {object_id} version {version} type {object_type} (from {node}) {text}"},
	DropSchemaObject: {Name: "DropSchemaObject", Category: CategorySchema, Level: 8, Severity: Note, Args: "object_id version object_type node",
		Form: "Dropped object {object_id} version {version} type {object_type} (from {node}) {text}"},
}

// Types calls visit for every type of the table, in the order of their numbers.
func Types(visit func(t Type, info Info)) {
	for t := range table {
		if table[t].Name != "" {
			visit(Type(t), table[t])
		}
	}
}
