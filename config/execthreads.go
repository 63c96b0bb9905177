package config

// executionThreads is how NDB documents MaxNoOfExecutionThreads: from this value on, this many threads of each kind.
// Up to 8 there are no TC threads (the main thread coordinates) and no send threads (every thread sends).
var executionThreads = [...]struct{ from, ldm, tc, send, recv int8 }{
	{0, 1, 0, 0, 1}, {4, 2, 0, 0, 1}, {7, 4, 0, 0, 1},
	{9, 4, 2, 0, 1}, {10, 4, 2, 1, 1}, {11, 4, 3, 1, 1},
	{12, 6, 2, 1, 1}, {13, 6, 3, 1, 1}, {14, 6, 3, 1, 2}, {15, 6, 3, 2, 2},
	{16, 8, 3, 1, 2}, {17, 8, 4, 1, 2}, {18, 8, 4, 2, 2}, {19, 8, 5, 2, 2},
	{20, 10, 4, 2, 2}, {21, 10, 5, 2, 2}, {22, 10, 5, 2, 3}, {23, 10, 6, 2, 3},
	{24, 12, 5, 2, 3}, {25, 12, 6, 2, 3}, {26, 12, 6, 3, 3}, {27, 12, 7, 3, 3},
	{28, 12, 7, 3, 4}, {29, 12, 8, 3, 4}, {30, 12, 8, 4, 4}, {31, 12, 9, 4, 4},
	{32, 16, 8, 3, 3}, {33, 16, 8, 3, 4}, {34, 16, 8, 4, 4}, {35, 16, 9, 4, 4},
	{36, 16, 10, 4, 4}, {37, 16, 10, 4, 5}, {38, 16, 11, 4, 5}, {39, 16, 11, 5, 5},
	{40, 20, 10, 4, 4}, {41, 20, 10, 4, 5}, {42, 20, 11, 4, 5}, {43, 20, 11, 5, 5},
	{44, 20, 12, 5, 5}, {45, 20, 12, 5, 6}, {46, 20, 13, 5, 6}, {47, 20, 13, 6, 6},
	{48, 24, 12, 5, 5}, {49, 24, 12, 5, 6}, {50, 24, 13, 5, 6}, {51, 24, 13, 6, 6},
	{52, 24, 14, 6, 6}, {53, 24, 14, 6, 7}, {54, 24, 15, 6, 7}, {55, 24, 15, 7, 7},
	{56, 24, 16, 7, 7}, {57, 24, 16, 7, 8}, {58, 24, 17, 7, 8}, {59, 24, 17, 8, 8},
	{60, 24, 18, 8, 8}, {61, 24, 18, 8, 9}, {62, 24, 19, 8, 9}, {63, 24, 19, 9, 9},
	{64, 32, 16, 7, 7}, {65, 32, 16, 7, 8}, {66, 32, 17, 7, 8}, {67, 32, 17, 8, 8},
	{68, 32, 18, 8, 8}, {69, 32, 18, 8, 9}, {70, 32, 19, 8, 9}, {71, 32, 20, 8, 9},
	{72, 32, 20, 8, 10},
}

// ExecutionThreads gives the threads that MaxNoOfExecutionThreads=n stands for. Besides those of the table above
// there are always a main and a replication thread. Less than 2 counts as 2, more than 72 as 72.
func ExecutionThreads(n int) ThreadCounts {
	row := executionThreads[0]
	for _, r := range executionThreads {
		if int(r.from) > n {
			break
		}
		row = r
	}
	return ThreadCounts{Main: 1, LDM: int(row.ldm), TC: int(row.tc), Recv: int(row.recv), Send: int(row.send), Rep: 1}
}
