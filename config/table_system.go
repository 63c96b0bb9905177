package config

// systemParameters are those of [SYSTEM], which has no default section and stands once.
var systemParameters = []Parameter{
	{Name: "ConfigGenerationNumber", Kind: KindInt, Default: "0", Min: "0", Max: "4294967039", Needs: NeedNodeRestart,
		Does: "number of this version of the configuration; the management server counts it up with every change"},
	{Name: "Name", Kind: KindString, Mandatory: true, Needs: NeedNodeRestart,
		Does: "name of the cluster; a node refuses a link to a cluster of another name. The management server invents one where none is given"},
	{Name: "PrimaryMGMNode", Kind: KindInt, Default: "0", Min: "0", Max: "4294967039", Unit: NodeIDs, Needs: NeedNodeRestart,
		Effect: NoEffect, Because: "one management server holds the configuration until several can agree on it"},
}

// computerParameters are those of [COMPUTER].
var computerParameters = []Parameter{
	{Name: "HostName", Kind: KindString, Mandatory: true, Needs: NeedNodeRestart,
		Does: "host name or address that ExecuteOnComputer stands for"},
	{Name: "Id", Kind: KindString, Mandatory: true, Needs: NeedNodeRestart,
		Does: "name by which ExecuteOnComputer refers to this computer"},
}
